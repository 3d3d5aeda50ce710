/* The linear-quadratic problems of Newton's loop: the twin of newton_model.py.  Before this text stands newton_point.h. */

static void between(double *to, const double *plain, const double *exact, double share, long count)
{
    for (long i = 0; i < count; i++) to[i] = plain[i] + share * (exact[i] - plain[i]);
}

static void on_diagonal(double *H, double delta, long knots, long n)
{
    for (long i = 0; i < knots; i++)
        for (long a = 0; a < n; a++) H[(i * n + a) * n + a] += delta;
}

/* The problem with a share of the curvature and the damping delta. */
static lq_problem newton_part(newton_t *o, double share, double delta)
{
    const long N = o->N, n = o->sweeps.n, m = o->sweeps.m;
    lq_problem lq = newton_lq(o->at, N);
    if (share == 1.0) {
        lq.Q = o->cQ, lq.S = o->cS, lq.R = o->cR;
    } else if (!o->alike && !o->at->plain) {
        newton_other(o, o->at);
        lq.Q = o->oQ, lq.S = o->oS, lq.R = o->oR;
    }
    if ((share == 0.0 || share == 1.0) && delta == 0.0 && !o->bounded) return lq;
    if (share == 0.0 || share == 1.0) {
        copy(o->mQ, lq.Q, (N + 1) * n * n), copy(o->mR, lq.R, N * m * m);
    } else {
        between(o->mQ, lq.Q, o->cQ, share, (N + 1) * n * n);
        between(o->mS, lq.S, o->cS, share, N * m * n);
        between(o->mR, lq.R, o->cR, share, N * m * m);
        lq.S = o->mS;
    }
    if (delta != 0.0) on_diagonal(o->mQ, delta, N + 1, n), on_diagonal(o->mR, delta, N, m);
    if (o->bounded) {
        copy(o->mr, lq.r, N * m);
        barrier_impose(&o->barrier, o->at->us, m, o->mR, o->mr);
        lq.r = o->mr;
    }
    lq.Q = o->mQ, lq.R = o->mR;
    return lq;
}

/* Attempts from the point e with some shares, as bits, under some gains, NULL for those without curvature: with them comes what newton_expand and
   newton_measure find. */
static void newton_attempt(newton_t *o, newton_point_t *e, long asked, double delta, const double *under)
{
    const double began = now();
    lq_attempt *a = &o->ahead;
    o->ahead_of = e, a->asked = asked, a->delta = delta, a->under = under;
    if (o->bounded) barrier_apart(&o->barrier, e->us, o->bend, o->push, o->pull), a->barrier = (lq_barrier){o->bend, o->pull, o->push};
    o->abreast->attempt(o, e);
    e->cost = a->cost, e->defect = a->defect, e->theta = a->theta, e->costate = a->costate;
    e->gradient = a->finite ? a->gradient : NAN, e->scaled = a->finite ? a->scaled : NAN;
    e->kkt = a->finite ? newton_error(o, e, 0.0) : NAN;
    o->record.seconds[BACKWARD] += now() - began;
}

/* The shares first .. last as bits, those behind the first one only where they are likely to be asked for: where the last step had not all of the
   curvature. */
static long newton_asked(const newton_t *o, int first, int last)
{
    const long all = (1L << last) - (1L << first);
    return first == o->widest && o->has_policy && o->last->share == first ? 1L << first : all;
}

/* to <- to + mu by, as far as there is a barrier */
static void newton_grow(const newton_t *o, double *to, const double *by, long count)
{
    for (long i = 0; o->bounded && i < count; i++) to[i] += o->barrier.mu * by[i];
}

/* See newton_convex; attempts tell, and their step goes `to`. */
static int newton_attempted(newton_t *o, int first, int last, double delta, newton_found_t *to)
{
    lq_attempt *a = &o->ahead;
    for (int i = first; i < last; i++) {
        const int known = o->ahead_of == o->at && a->delta == delta && a->asked >> i & 1;
        const int found = known && a->convex >> i & 1;
        if (!known || (found && a->share != i)) newton_attempt(o, o->at, newton_asked(o, i, last), delta, o->last->K);
        if (a->share != i) continue;
        const lq_policy left = {to->K, to->k, NULL, NULL};
        const lq_step step = {to->dx, to->du};
        const double mu = o->bounded ? o->barrier.mu : 0.0;
        const long steps = o->N * o->sweeps.m;
        to->K = a->K[i], to->k = a->k[i], to->dx = a->dx, to->du = a->du, to->slope = a->slope[0] + mu * (a->slope[1] + mu * a->slope[2]);
        a->K[i] = left.K, a->k[i] = left.k, a->dx = step.dx, a->du = step.du, o->ahead_of = NULL;
        newton_grow(o, to->k, a->k_by[i], steps), newton_grow(o, to->du, a->du_by, steps);
        newton_grow(o, to->dx, a->dx_by, (o->N + 1) * o->sweeps.n);
        return i;
    }
    return last;
}

/* The number of the first of the shares first .. last that leaves a convex problem, with its policy in `to`; last where none does. */
static int newton_convex(newton_t *o, int first, int last, double delta, newton_found_t *to, lq_problem *lq)
{
    const lq_policy policy = {to->K, to->k, o->Vx, o->Vxx};
    const long values = (o->N + 1) * o->sweeps.n * o->sweeps.n;
    if (o->abreast) return newton_attempted(o, first, last, delta, to);
    for (int i = first; i < last; i++) {
        *lq = newton_part(o, shares[i], delta);
        const double began = now();
        const int convex = o->sweeps.riccati(lq, NULL, 0.0, 0.0, NULL, &policy) < 0 && all_finite(o->Vxx, values);
        o->record.seconds[BACKWARD] += now() - began;
        if (convex) return i;
    }
    return last;
}

