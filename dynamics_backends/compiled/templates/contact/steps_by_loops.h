/* Time steps of free robots and robots in soft contact, by loops over tables. Sizes, contact points and the scheme are read at
   run time, so that the text is the same for all robots with one contact law.

   Required before this text: FLOATING (type of a joint on a Lie group), the indices TYPE, Q_INDEX, V_INDEX, UP, END of tables,
   the kernels MOTION and DYNAMICS as macros with named arguments, and their workspaces, START and FINISH (fields of the first
   part, and the call of the second) with their workspace, the functions of SE(3) (sources/manifold_source.py), and the
   straight-line code

       contact_force(X, vel, at, origin, ground, r)     force on a body, in the body frame, at its point `at`; ground: plane and law
       contact_slopes(X, vel, at, origin, ground, r)    position and velocity of the point about the working origin, the force on it,
                                                        and its derivatives in both (by columns), in world axes

   The scheme is that of trajopt/step/integrators.py, for f without explicit time dependence. */

#pragma once
#include "../../../machine/include/steps.h"
#include "../lanes/prelude.h"

static void cross(const V *a, const V *b, V *restrict r)
{
    for (int i = 0; i < 3; i++) {
        const int j = (i + 1) % 3, k = (i + 2) % 3;
        r[i] = a[j] * b[k] - a[k] * b[j];
    }
}

/* Velocity of motion m (angular; linear) at the point p. */
static void field_at(const V *m, const V *p, V *restrict r)
{
    cross(m, p, r);
    for (int i = 0; i < 3; i++) r[i] += m[3 + i];
}

/* Origin of a floating base, and q relative to it. */
static void about_base(const robot_t *s, const V *x, V *restrict q, V *restrict origin)
{
    memcpy(q, x, sizeof(V) * s->nq);
    for (int i = 0; i < 3; i++) origin[i] = ZERO;
    if (!s->floating) return;
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 3; j++) origin[i] += s->turn[3 * i + j] * x[j];
        q[i] = ZERO;
    }
}

/* Joint forces tau (nv) of controls, damping at the velocity v + e (NULL: v), friction and springs, and rotors (nv) with
   implicit damping over h. */
static void joint_forces(const robot_t *s, const V *x, const V *u, const V *e, V h, V *restrict tau, V *restrict rotors)
{
    const int nv = s->nv, *restrict type = s->ti[TYPE], *restrict q_at = s->ti[Q_INDEX], *restrict v_at = s->ti[V_INDEX];
    const V *v = x + s->nq;
    for (int d = 0; d < nv; d++) {
        tau[d] = -s->viscous[d] * v[d];
        if (e) tau[d] -= s->damped[d] * e[d];
        if (s->coulomb[d] != 0.0) tau[d] -= s->coulomb[d] * v_tanh(v[d] / s->slip);
        rotors[d] = s->rotor[d] + h * (s->damps ? s->damped[d] : 0.0);
    }
    for (int b = 0; b < s->nb; b++) {
        const int d = v_at[b];
        if (type[b] != FLOATING && s->stiffness[d] != 0.0) tau[d] -= s->stiffness[d] * (x[q_at[b]] - s->rest[d]);
    }
    for (int i = 0; i < s->controls; i++) tau[s->driven[i]] += u[i];
}

/* Accelerations (nv) at x. */
static void accelerations(const robot_t *s, const V *x, const V *u, const V *e, V h, V *restrict a, V *room)
{
    const int nb = s->nb, nv = s->nv, nq = s->nq;
    const V *v = x + nq;
    V *q = room, *X = q + nq, *S = X + 12 * nb, *vel = S + 6 * nv, *external = vel + 6 * nb, *tau = external + 6 * nb;
    V *rotors = tau + nv, *rest = rotors + nv, origin[3], still[3] = {ZERO, ZERO, ZERO}, force[6];
    about_base(s, x, q, origin);
    memset(external, 0, sizeof(V) * 6 * nb);
    if (s->points) MOTION(s, q, v, X, S, vel, rest);
    for (int c = 0; c < s->points; c++) {
        const int b = s->body[c];
        contact_force(X + 12 * b, vel + 6 * b, s->at + 3 * c, s->rides[c] ? origin : still, s->ground, force);
        for (int i = 0; i < 6; i++) external[6 * b + i] += force[i];
    }
    joint_forces(s, x, u, e, h, tau, rotors);
    DYNAMICS(s, x, v, tau, external, rotors, a, rest);
}

/* y (6 x w) <- M x, or y + M x if `more`; without `more` x and y may be the same. */
static void block_times(const V *restrict M, const V *x, V *y, int w, int more)
{
    for (int c = 0; c < w; c++) {
        V sum[6];
        for (int i = 0; i < 6; i++) {
            sum[i] = more ? y[i * w + c] : ZERO;
            for (int k = 0; k < 6; k++) sum[i] += M[6 * i + k] * x[k * w + c];
        }
        for (int i = 0; i < 6; i++) y[i * w + c] = sum[i];
    }
}

/* y = x (+) d; x and y differ. */
static void integrate(const robot_t *s, const V *x, const V *d, V *restrict y)
{
    const int *restrict type = s->ti[TYPE], *restrict q_at = s->ti[Q_INDEX], *restrict v_at = s->ti[V_INDEX];
    for (int b = 0; b < s->nb; b++)
        if (type[b] == FLOATING) se3_integrate(x + q_at[b], d + v_at[b], y + q_at[b]);
        else y[q_at[b]] = x[q_at[b]] + d[v_at[b]];
    for (int i = 0; i < s->nv; i++) y[s->nq + i] = x[s->nq + i] + d[s->nv + i];
}

/* On Lie groups: d <- dexp^-1(delta) d. */
static void carried(const robot_t *s, const V *delta, V *restrict d)
{
    const int *restrict type = s->ti[TYPE], *restrict v_at = s->ti[V_INDEX];
    V inverse[36];
    for (int b = 0; b < s->nb; b++)
        if (type[b] == FLOATING) {
            se3_dexp_inv(delta + v_at[b], inverse);
            block_times(inverse, d + v_at[b], d + v_at[b], 1, 0);
        }
}

/* r (n) = h sum_j a[j] K[j] over rows of `width` numbers */
static void combined(const double *a, int count, V h, const V *K, long width, long n, V *restrict r)
{
    for (long i = 0; i < n; i++) r[i] = ZERO;
    for (int j = 0; j < count; j++)
        if (a[j] != 0.0)
            for (long i = 0; i < n; i++) r[i] += a[j] * K[j * width + i];
    for (long i = 0; i < n; i++) r[i] *= h;
}

/* Increment (2 nv) of one step of length h from x. */
static void increment(const robot_t *s, const V *x, const V *u, V h, V *restrict delta, V *room)
{
    const int nv = s->nv, nq = s->nq, n = 2 * nv, stages = s->stages;
    V *K = room, *at = K + stages * n, *e = at + nq + nv, *rest = e + nv;
    const V *here = x, *lag = NULL;
    for (int i = 0; i < stages; i++) {
        const double *row = s->A + i * stages, *implicit = s->AI + i * stages;
        if (i > 0) {
            combined(row, i, h, K, n, n, delta);
            integrate(s, x, delta, at);
            here = at;
            if (s->lagged) {
                double weights[4];
                for (int j = 0; j < i; j++) weights[j] = implicit[j] - row[j];
                combined(weights, i, h, K + nv, n, nv, e);
                lag = e;
            }
        }
        memcpy(K + i * n, here + nq, sizeof(V) * nv);
        accelerations(s, here, u, lag, implicit[i] * h, K + i * n + nv, rest);
        if (i > 0) carried(s, delta, K + i * n);
    }
    combined(s->B, stages, h, K, n, n, delta);
    if (s->semi_implicit)
        for (int d = 0; d < nv; d++) delta[d] += h * delta[nv + d];
}

/* Subtract the derivatives of a contact's joint forces from dq and dv (nv x nv), and add its force to tau and to `ground`. */
static void add_contact(const robot_t *s, int c, const V *at, const V *S, const V *psid, V *dq, V *dv, V *tau, V *ground)
{
    const V *p = at, *velocity = at + 3, *F = at + 6, *in_p = at + 9, *in_w = at + 18;
    const int nv = s->nv, b = s->body[c], *restrict up = s->ti[UP], last = s->ti[V_INDEX][b + 1] - 1;
    V moment[3], change[3], slope[3];
    cross(p, F, moment);
    for (int i = 0; i < 3; i++) ground[6 * b + i] += moment[i], ground[6 * b + 3 + i] += F[i];
    for (int j = last; j >= 0; j = up[j]) {
        const V *w = S + 6 * j;
        V J[3], rate[3], turned[3];
        field_at(w, p, J);
        field_at(psid + 6 * j, p, rate);
        cross(w, velocity, turned);
        for (int i = 0; i < 3; i++) rate[i] += turned[i];
        cross(F, w, change);
        for (int i = 0; i < 3; i++) {
            slope[i] = in_w[i] * J[0] + in_w[3 + i] * J[1] + in_w[6 + i] * J[2];
            change[i] += in_p[i] * J[0] + in_p[3 + i] * J[1] + in_p[6 + i] * J[2];
            change[i] += in_w[i] * rate[0] + in_w[3 + i] * rate[1] + in_w[6 + i] * rate[2];
        }
        tau[j] += J[0] * F[0] + J[1] * F[1] + J[2] * F[2];
        for (int k = last; k >= 0; k = up[k]) {
            V along[3];
            field_at(S + 6 * k, p, along);
            dq[k * nv + j] -= along[0] * change[0] + along[1] * change[1] + along[2] * change[2];
            dv[k * nv + j] -= along[0] * slope[0] + along[1] * slope[1] + along[2] * slope[2];
        }
    }
}

/* Accelerations (nv) at x, their derivatives fx (nv x 2 nv), and M^-1 (nv x nv). */
static void slopes(
    const robot_t *s, const V *x, const V *u, const V *e, V h, V *restrict a, V *restrict fx, V *restrict inverse, V *room)
{
    const int nb = s->nb, nv = s->nv, nq = s->nq, *head = s->ti[0], *restrict type = s->ti[TYPE];
    const branches_t tree = {nv, s->ti[UP], s->ti[END]};
    const V *v = x + nq;
    V *q = room, *tau = q + nq, *rotors = tau + nv, *dq = rotors + nv, *dv = dq + nv * nv;
    V *f_ground = dv + nv * nv, *dq_contact = f_ground + 6 * nb, *dv_contact = dq_contact + nv * nv;
    V *w = dv_contact + nv * nv, origin[3], still[3] = {ZERO, ZERO, ZERO};
    (void)head;
    about_base(s, x, q, origin);
    joint_forces(s, x, u, e, h, tau, rotors);
    START
    memset(f_ground, 0, sizeof(V) * 6 * nb);
    memset(dq_contact, 0, sizeof(V) * 2 * nv * nv);
    for (int i = 0; i < nv; i++) tau[i] -= f_tau_bias[i];
    for (int c = 0; c < s->points; c++) {
        const int b = s->body[c];
        V at[27];
        contact_slopes(f_X + 12 * b, f_vel + 6 * b, s->at + 3 * c, s->rides[c] ? origin : still, s->ground, at);
        add_contact(s, c, at, f_S, f_psid, dq_contact, dv_contact, tau, f_ground);
    }
    ltl_solve(tree, f_factor, tau, a, 1, 1.0, 0);
    FINISH
    for (int i = 0; i < nv * nv; i++) dq[i] += dq_contact[i], dv[i] += dv_contact[i];
    ltl_solve(tree, f_factor, dq, dq, nv, -1.0, 1);
    ltl_solve(tree, f_factor, dv, dv, nv, -1.0, 1);
    ltl_inverse(tree, f_factor, inverse);
    const int *restrict body = s->ti[DOF_BODY];
    for (int j = 0; j < nv; j++) {
        const double spring = type[body[j]] == FLOATING ? 0.0 : s->stiffness[j];
        V resistance = splat(s->viscous[j]);
        if (s->coulomb[j] != 0.0) {
            const V t = v_tanh(v[j] / s->slip);
            resistance += s->coulomb[j] * (1.0 - t * t) / s->slip;
        }
        for (int i = 0; i < nv; i++) {
            fx[i * 2 * nv + j] = dq[i * nv + j] - inverse[i * nv + j] * spring;
            fx[i * 2 * nv + nv + j] = dv[i * nv + j] - inverse[i * nv + j] * resistance;
        }
    }
}

/* K (2 nv x w) = d (v, a) / d w from the derivative S of the state and E (nv x w; NULL: zero) of the offset. */
static void slope_rows(const robot_t *s, const V *fx, const V *inverse, const V *S, const V *E, V *restrict K)
{
    const int nv = s->nv, n = 2 * nv, w = n + s->controls;
    memcpy(K, S + (long)nv * w, sizeof(V) * nv * w);
    for (int i = 0; i < nv; i++) {
        V *row = K + (long)(nv + i) * w;
        for (int c = 0; c < n; c++) row[c] = ZERO;
        for (int c = 0; c < s->controls; c++) row[n + c] = inverse[i * nv + s->driven[c]];
        for (int k = 0; k < n; k++)
            for (int c = 0; c < w; c++) row[c] += fx[i * n + k] * S[k * w + c];
        for (int k = 0; E && k < nv; k++)
            if (s->damped[k] != 0.0)
                for (int c = 0; c < w; c++) row[c] -= inverse[i * nv + k] * s->damped[k] * E[k * w + c];
    }
}

/* S (2 nv x w) = d (x (+) delta) / d w from the derivatives G of x and D of delta */
static void moved(const robot_t *s, const V *delta, const V *G, const V *D, V *restrict S)
{
    const int n = 2 * s->nv, w = n + s->controls, *restrict type = s->ti[TYPE], *restrict v_at = s->ti[V_INDEX];
    for (int i = 0; i < n * w; i++) S[i] = G[i] + D[i];
    for (int b = 0; b < s->nb; b++)
        if (type[b] == FLOATING) {
            const int at = v_at[b] * w;
            V transport[36], dexp[36];
            se3_transport(delta + v_at[b], transport);
            se3_dexp(delta + v_at[b], dexp);
            block_times(transport, G + at, S + at, w, 0);
            block_times(dexp, D + at, S + at, w, 1);
        }
}

/* On Lie groups: k <- dexp^-1(delta) k, and its derivative K; D: the derivative of delta */
static void pulled_back(const robot_t *s, const V *delta, const V *D, V *restrict k, V *restrict K)
{
    const int w = 2 * s->nv + s->controls, *restrict type = s->ti[TYPE], *restrict v_at = s->ti[V_INDEX];
    for (int b = 0; b < s->nb; b++)
        if (type[b] == FLOATING) {
            const int at = v_at[b] * w;
            V inverse[36], along[36];
            se3_dexp_inv(delta + v_at[b], inverse);
            se3_d_dexp_inv(delta + v_at[b], k + v_at[b], along);
            block_times(inverse, K + at, K + at, w, 0);
            block_times(along, D + at, K + at, w, 1);
        }
    carried(s, delta, k);
}

/* One step of length h from x; updates the derivative G (2 nv x w) of the state in the initial (x, u). */
static void step_first(const robot_t *s, V *restrict x, const V *u, V h, V *restrict G, V *room)
{
    const int nv = s->nv, nq = s->nq, n = 2 * nv, stages = s->stages;
    const long all = (long)n * (n + s->controls), half = all / 2;
    V *K = room, *KW = K + stages * n, *S = KW + stages * all, *D = S + all, *delta = D + all, *at = delta + n;
    V *e = at + nq + nv, *E = e + nv, *fx = E + half, *inverse = fx + nv * n, *rest = inverse + nv * nv;
    const V *here = x, *lag = NULL, *G_here = G;
    for (int i = 0; i < stages; i++) {
        const double *row = s->A + i * stages, *implicit = s->AI + i * stages;
        if (i > 0) {
            combined(row, i, h, K, n, n, delta);
            combined(row, i, h, KW, all, all, D);
            integrate(s, x, delta, at);
            moved(s, delta, G, D, S);
            here = at, G_here = S;
            if (s->lagged) {
                double weights[4];
                for (int j = 0; j < i; j++) weights[j] = implicit[j] - row[j];
                combined(weights, i, h, K + nv, n, nv, e);
                combined(weights, i, h, KW + half, all, half, E);
                lag = e;
            }
        }
        memcpy(K + i * n, here + nq, sizeof(V) * nv);
        slopes(s, here, u, lag, implicit[i] * h, K + i * n + nv, fx, inverse, rest);
        slope_rows(s, fx, inverse, G_here, lag ? E : NULL, KW + i * all);
        if (i > 0) pulled_back(s, delta, D, K + i * n, KW + i * all);
    }
    combined(s->B, stages, h, K, n, n, delta);
    combined(s->B, stages, h, KW, all, all, D);
    if (s->semi_implicit) {
        for (int d = 0; d < nv; d++) delta[d] += h * delta[nv + d];
        for (long i = 0; i < half; i++) D[i] += h * D[half + i];
    }
    integrate(s, x, delta, at);
    memcpy(x, at, sizeof(V) * (nq + nv));
    moved(s, delta, G, D, S);
    memcpy(G, S, sizeof(V) * all);
}

static long first_room(const robot_t *s)
{
    const int nb = s->nb, nv = s->nv, nq = s->nq, *head = s->ti[0];
    (void)head, (void)nb, (void)nq;
    const long n = 2 * nv, all = n * (n + s->controls), field = nq + 2 * nv + 4 * nv * nv + 6 * nb;
    const long step = (s->stages + 1) * n + (s->stages + 3) * all + nq + 2 * nv + nv * n + nv * nv;
    return nq + nv + s->controls + 1 + all + step + field + SLOPES_ROOM + LANES;
}

/* x_next (knots x (nq + nv)) and its derivative in (x, u), (knots x 2 nv x (2 nv + controls)) */
static void first_run(
    const robot_t *s, const double *x, const double *u, const double *dt, double *next, double *slope, long first, long last, void *room)
{
    const int nx = s->nq + s->nv, n = 2 * s->nv, w = n + s->controls;
    V *from = room, *held = from + nx, *h = held + s->controls, *G = h + 1, *rest = G + (long)n * w;
    for (long k = first; k < last; k += LANES) {
        const int count = last - k < LANES ? last - k : LANES;
        pack(x + k * nx, nx, count, from);
        pack(u + k * s->controls, s->controls, count, held);
        pack(dt + k, 1, count, h);
        for (int i = 0; i < n * w; i++) G[i] = splat(i / w == i % w);
        for (int i = 0; i < s->substeps; i++) step_first(s, from, held, *h / (double)s->substeps, G, rest);
        unpack(from, nx, count, next + k * nx);
        unpack(G, (long)n * w, count, slope + k * n * w);
    }
}

static long step_room(const robot_t *s)
{
    const int nb = s->nb, nv = s->nv, nq = s->nq, *head = s->ti[0];
    (void)head, (void)nb;
    const long motion = MOTION_ROOM, dynamics = DYNAMICS_ROOM, kernel = motion > dynamics ? motion : dynamics;
    const long field = nq + 24 * nb + 8 * nv + kernel, step = (2 * s->stages + 1) * nv + nq + nv;
    return 3 * (nq + nv) + s->controls + 2 * nv + 1 + step + field + LANES;
}

/* x_next (knots x (nq + nv)) of the knots first .. last from x, u (knots x controls) and dt (knots) */
static void step_run(
    const robot_t *s, const double *x, const double *u, const double *dt, double *next, long first, long last, void *room)
{
    const int n = s->nq + s->nv;
    V *from = room, *to = from + n, *held = to + n, *delta = held + s->controls, *h = delta + 2 * s->nv, *rest = h + 1;
    for (long k = first; k < last; k += LANES) {
        const int count = last - k < LANES ? last - k : LANES;
        pack(x + k * n, n, count, from);
        pack(u + k * s->controls, s->controls, count, held);
        pack(dt + k, 1, count, h);
        for (int i = 0; i < s->substeps; i++) {
            increment(s, from, held, *h / (double)s->substeps, delta, rest);
            integrate(s, from, delta, to);
            V *swap = from;
            from = to, to = swap;
        }
        unpack(from, n, count, next + k * n);
    }
}
