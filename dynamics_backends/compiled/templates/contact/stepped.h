/* Dynamics of robots that touch the ground in long time steps: dynamics_value and dynamics_partials. Python version: solved in
   systems/contact/implicit_step.py.

   Required before this text: constrained.h (with no constraint rows), SV, SC (degrees of freedom, contacts), SM, SJ (entries of
   M and of all J), SSTEP (position of the step length in p), SSTEPS, SENERGY, SFLAT, STRIALS (STEPS, ACCURACY^2, FLAT, TRIALS in
   Python), SROOM (workspace of the functions below) and the straight-line code

   stepped_parts(c, x, u, t, p, M, drive, J, speed, gap, normal, energy)          contact problem of a step
   stepped_law(gap, normal, w, p, force, slope)                                   contact law of one contact
   stepped_direction(M, drive, J, h, delta, force, slope, d, along, sums, w)      sums: decrement, phi' at zero without forces, d' M d
   stepped_linear(c, x, u, t, p, a, top, entries)                                 linear equations of the derivatives */

typedef struct {
    V M[SM], drive[SV], J[SJ], w[3 * SC], gap[SC], normal[3 * SC], energy[1], force[3 * SC], slope[9 * SC], d[SV], along[3 * SC], sums[3],
        delta[SV];
} stepped_t;

static V stepped_either(V where, V yes, V no) { return v_if_else_zero(where, yes) + v_if_else_zero(v_not(where), no); }

static int stepped_all(V where)
{
    for (int l = 0; l < LANES; l++)
        if (LANE(where, l) == 0.0) return 0;
    return 1;
}

/* First and second derivative of phi at a step length */
static void stepped_slope(const stepped_t *s, const V *p, V length, V *slope, V *bend)
{
    V by_force = ZERO, by_slope = ZERO;
    for (int i = 0; i < SC; i++) {
        const V *e = s->along + 3 * i;
        V w[3], force[3], F[9];
        for (int k = 0; k < 3; k++) w[k] = s->w[3 * i + k] + length * e[k];
        stepped_law(s->gap + i, s->normal + 3 * i, w, p, force, F);
        for (int k = 0; k < 3; k++) {
            by_force += e[k] * force[k];
            by_slope += e[k] * (F[3 * k] * e[0] + F[3 * k + 1] * e[1] + F[3 * k + 2] * e[2]);
        }
    }
    *slope = s->sums[1] + length * s->sums[2] - p[SSTEP] * by_force;
    *bend = s->sums[2] - p[SSTEP] * by_slope;
}

static V stepped_length(const stepped_t *s, const V *p, V settled)
{
    V length = splat(1.0), lower = ZERO, upper = length;
    for (int trial = 0; trial < STRIALS; trial++) {
        V slope, bend;
        stepped_slope(s, p, length, &slope, &bend);
        settled = v_or(settled, v_not(v_lt(SFLAT * s->sums[0], v_fabs(slope))));
        if (trial == 0) settled = v_or(settled, v_le(slope, ZERO));
        if (stepped_all(settled)) break;
        const V below = v_lt(slope, ZERO);
        lower = stepped_either(below, length, lower);
        upper = stepped_either(below, upper, length);
        const V newton = length - slope / bend, inside = v_and(v_lt(lower, newton), v_lt(newton, upper));
        length = stepped_either(settled, length, stepped_either(inside, newton, 0.5 * (lower + upper)));
    }
    return length;
}

/* Solve for s->delta; a lane that has converged no longer moves. */
static void stepped_solve(ctx_t c, const V *x, const V *u, V t, const V *p, stepped_t *s)
{
    V arrived = ZERO;
    stepped_parts(c, x, u, t, p, s->M, s->drive, s->J, s->w, s->gap, s->normal, s->energy);
    for (int i = 0; i < SV; i++) s->delta[i] = ZERO;
    for (int n = 0; n < SSTEPS; n++) {
        for (int i = 0; i < SC; i++)
            stepped_law(s->gap + i, s->normal + 3 * i, s->w + 3 * i, p, s->force + 3 * i, s->slope + 9 * i);
        stepped_direction(s->M, s->drive, s->J, p + SSTEP, s->delta, s->force, s->slope, s->d, s->along, s->sums, c.w);
        const V length = v_if_else_zero(v_not(arrived), stepped_length(s, p, arrived));
        for (int i = 0; i < SV; i++) s->delta[i] += length * s->d[i];
        for (int i = 0; i < 3 * SC; i++) s->w[i] += length * s->along[i];
        arrived = v_or(arrived, v_not(v_lt(SENERGY * s->energy[0], s->sums[0]))); /* lanes that are not finite stop too */
        if (stepped_all(arrived)) break;
    }
}

static void dynamics_value(ctx_t c, const V *x, const V *u, V t, const V *p, V *f)
{
    stepped_t *s = (stepped_t *)c.w;
    c.w = (V *)(s + 1);
    stepped_solve(c, x, u, t, p, s);
    for (int i = 0; i < SV; i++) f[i] = s->delta[i] / p[SSTEP];
}

static void dynamics_partials(ctx_t c, const V *x, const V *u, V t, const V *p, V *f, V *fx, V *fu)
{
    constrained_factor_t *k = (constrained_factor_t *)c.w;
    V *top = (V *)(k + 1), none[CC];
    c.w = top + CD * CC;
    dynamics_value(c, x, u, t, p, f);
    stepped_linear(c, x, u, t, p, f, top, (V *)k);
    constrained_first((constrained_sides_t){k, top, none}, fx, fu, NULL);
}
