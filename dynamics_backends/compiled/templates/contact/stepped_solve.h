/* Change of velocity in a time step with contacts, by Newton's method. Python version: solved of
   dynamics_backends/systems/contact/implicit_step.py.

   Kernel of loops.h. ti[0]: head, the degrees of freedom n, contacts c, parameters of the law, STEPS and TRIALS of Python; ti[1], ti[2]: up and
   end of ltl.h; ti[3], ti[4]: degrees of freedom that move contact i, at[start[i]] .. at[start[i + 1] - 1]. td[0]: ACCURACY^2 and FLAT.
   tapes[0]: the contact law, gap, normal (3), w (3), p -> force (3), slope (3 x 3).
   Inputs: M by rows, from the diagonal along the ancestors; drive (n); the columns of J of all contacts (3 each); w (c x 3); gap (c);
   normal (c x 3); the energy; the step length; p. Output: delta (n). */
#pragma once
#include "../../../machine/include/loops.h"
#include "../../../tape/kernels/tape.h"
#include "../lanes/function.h"
#include "../lanes/prelude.h"
#include "../linear_algebra/ltl.h"
#include "../linear_algebra/tensors.h"

typedef struct {
    int n, c, parameters, steps, trials;
    branches_t tree;
    const int *start, *at;
    const tape_t *law;
    double accuracy, flat;
    const V *M, *drive, *J, *energy;
    V h, *w, *gap, *normal, *p, *tried, *force, *slope; /* by components, then contacts */
    V *H, *factor, *still, *d, *along, *workspace;
    V decrement, constant, inertia;
} stepped_t;

static V stepped_either(V where, V yes, V no) { return v_if_else_zero(where, yes) + v_if_else_zero(v_not(where), no); }

static int stepped_all(V where)
{
    for (int l = 0; l < LANES; l++)
        if (LANE(where, l) == 0.0) return 0;
    return 1;
}

/* Forces and their derivatives in w at velocities w of the points, for all contacts. */
static void stepped_law(const stepped_t *s, const V *w)
{
    tape_run(s->law, IN(s->gap, s->normal, w, s->p), OUT(s->force, s->slope), s->workspace, s->c, (places_t){s->c, 1});
}

/* y <- M x */
static void stepped_times(const stepped_t *s, const V *x, V *restrict y)
{
    const V *m = s->M;
    for (int i = 0; i < s->n; i++) {
        V sum = *m++ * x[i];
        for (int j = s->tree.up[i]; j >= 0; j = s->tree.up[j], m++) sum += *m * x[j], y[j] += *m * x[i];
        y[i] = sum;
    }
}

static V stepped_dot(const V *x, const V *y, int n)
{
    V sum = ZERO;
    for (int i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

/* Newton direction d at delta, J d, the decrement d' H d, and phi'(alpha) without forces: constant + alpha inertia */
static void stepped_direction(stepped_t *s, const V *delta)
{
    const int n = s->n, c = s->c;
    V r[n], md[n];
    stepped_times(s, delta, s->still);
    for (int i = 0; i < n; i++) s->still[i] -= s->h * s->drive[i], r[i] = -s->still[i];
    const V *m = s->M;
    for (int i = 0; i < n; i++)
        for (int j = i; j >= 0; j = s->tree.up[j]) s->H[i * n + j] = *m++;
    for (int k = 0; k < c; k++)
        for (int a = s->start[k]; a < s->start[k + 1]; a++) {
            const V *x = s->J + 3 * a;
            V weighted[3];
            for (int i = 0; i < 3; i++) {
                weighted[i] = ZERO;
                for (int j = 0; j < 3; j++) weighted[i] += s->slope[(3 * i + j) * c + k] * x[j];
                weighted[i] *= s->h;
                r[s->at[a]] += s->h * x[i] * s->force[i * c + k];
            }
            for (int b = s->start[k]; b < s->start[k + 1]; b++)
                if (s->at[b] >= s->at[a]) s->H[s->at[b] * n + s->at[a]] -= stepped_dot(s->J + 3 * b, weighted, 3);
        }
    ltl_factor(n, s->tree.up, s->H, s->factor);
    ltl_solve(s->tree, s->factor, r, s->d, 1, 1.0, 0);
    for (int k = 0; k < c; k++)
        for (int i = 0; i < 3; i++) {
            V sum = ZERO;
            for (int a = s->start[k]; a < s->start[k + 1]; a++) sum += s->J[3 * a + i] * s->d[s->at[a]];
            s->along[i * c + k] = sum;
        }
    stepped_times(s, s->d, md);
    s->decrement = stepped_dot(s->d, r, n), s->constant = stepped_dot(s->d, s->still, n), s->inertia = stepped_dot(s->d, md, n);
}

/* First and second derivative of phi at a step length */
static void stepped_slope(const stepped_t *s, V length, V *slope, V *curvature)
{
    const int c = s->c;
    V by_force = ZERO, by_slope = ZERO;
    for (int i = 0; i < 3 * c; i++) s->tried[i] = s->w[i] + length * s->along[i];
    stepped_law(s, s->tried);
    for (int k = 0; k < c; k++)
        for (int i = 0; i < 3; i++) {
            const V e = s->along[i * c + k];
            by_force += e * s->force[i * c + k];
            for (int j = 0; j < 3; j++) by_slope += e * s->slope[(3 * i + j) * c + k] * s->along[j * c + k];
        }
    *slope = s->constant + length * s->inertia - s->h * by_force;
    *curvature = s->inertia - s->h * by_slope;
}

static V stepped_length(const stepped_t *s, V settled)
{
    V length = splat(1.0), lower = ZERO, upper = length;
    for (int trial = 0; trial < s->trials; trial++) {
        V slope, curvature;
        stepped_slope(s, length, &slope, &curvature);
        settled = v_or(settled, v_not(v_lt(s->flat * s->decrement, v_fabs(slope))));
        if (trial == 0) settled = v_or(settled, v_le(slope, ZERO));
        if (stepped_all(settled)) break;
        const V below = v_lt(slope, ZERO);
        lower = stepped_either(below, length, lower);
        upper = stepped_either(below, upper, length);
        const V newton = length - slope / curvature, inside = v_and(v_lt(lower, newton), v_lt(newton, upper));
        length = stepped_either(settled, length, stepped_either(inside, newton, 0.5 * (lower + upper)));
    }
    return length;
}

/* to (components x c) <- from (c x components) */
static const V *by_components(const V *from, int components, int c, V *restrict to)
{
    for (int k = 0; k < c; k++)
        for (int i = 0; i < components; i++) to[i * c + k] = *from++;
    return from;
}

static long stepped_solve_workspace(const int *head)
{
    const long n = head[0], c = head[1];
    return c * (25 + head[2]) + 2 * n * n + 3 * n;
}

static void stepped_solve_run(const tables_t *tables, const void *in, void *out, void *workspace)
{
    const int *const *ti = tables->ti, *head = ti[0];
    const int n = head[0], c = head[1], parameters = head[2];
    stepped_t s = {n, c, parameters, head[3], head[4], {n, ti[1], ti[2]}, ti[3], ti[4], tables->tapes[0], tables->td[0][0], tables->td[0][1]};
    const V *from = in;
    V *w = workspace, *delta = out, arrived = ZERO;
    s.gap = w, s.w = s.gap + c, s.normal = s.w + 3 * c, s.tried = s.normal + 3 * c, s.force = s.tried + 3 * c, s.slope = s.force + 3 * c;
    s.along = s.slope + 9 * c, s.p = s.along + 3 * c, s.H = s.p + parameters * c, s.factor = s.H + n * n;
    s.still = s.factor + n * n + n, s.d = s.still + n, s.workspace = s.d + n;
    s.M = from;
    for (int i = 0; i < n; i++)
        for (int j = i; j >= 0; j = s.tree.up[j]) from++;
    s.drive = from, s.J = from + n;
    from = by_components(s.J + 3 * s.start[c], 3, c, s.w);
    from = by_components(from, 1, c, s.gap);
    from = by_components(from, 3, c, s.normal);
    s.energy = from++, s.h = *from++;
    for (int i = 0; i < parameters; i++)
        for (int k = 0; k < c; k++) s.p[i * c + k] = from[i];
    for (int i = 0; i < n; i++) delta[i] = ZERO;
    for (int step = 0; step < s.steps; step++) {
        stepped_law(&s, s.w);
        stepped_direction(&s, delta);
        const V length = v_if_else_zero(v_not(arrived), stepped_length(&s, arrived));
        for (int i = 0; i < n; i++) delta[i] += length * s.d[i];
        for (int i = 0; i < 3 * c; i++) s.w[i] += length * s.along[i];
        arrived = v_or(arrived, v_not(v_lt(s.accuracy * *s.energy, s.decrement))); /* lanes that are not finite stop too */
        if (stepped_all(arrived)) break;
    }
}
