static const structure_t *const S = &structure;

void prefix_dynamics(const double *x, const double *u, double *xdot)
{
    double w[DYNAMICS_WORKSPACE + 1], inputs[INPUTS_WORKSPACE], t = 0.0;
    const int above = ND - NF, extended = S->implicit; /* rows of qdot = v */
    if (extended) extend_inputs(S, u, x, NULL, 0.0, inputs);
    for (int i = 0; i < above; i++) xdot[i] = x[NX - NF + i];
    call(S->functions->dynamics_value, IN(x, extended ? inputs : u, &t, extended ? inputs + ME + 1 : x), OUT(xdot + above), w);
}

void prefix_dynamics_partials(const double *x, const double *u, double *xdot, double *fx, double *fu)
{
    double w[DYNAMICS_WORKSPACE + 1], inputs[INPUTS_WORKSPACE], own[NF * ME + 1], t = 0.0;
    const int above = ND - NF, extended = S->implicit;
    if (extended) extend_inputs(S, u, x, NULL, 0.0, inputs);
    memset(fx, 0, sizeof(double) * above * ND);
    memset(fu, 0, sizeof(double) * above * NU);
    for (int i = 0; i < above; i++) xdot[i] = x[NX - NF + i], fx[i * ND + NF + i] = 1.0;
    double *const out[] = {xdot + above, fx + above * ND, own};
    call(S->functions->dynamics_partials, IN(x, extended ? inputs : u, &t, extended ? inputs + ME + 1 : x), out, w);
    for (int i = 0; i < NF; i++) memcpy(fu + (above + i) * NU, own + i * ME, sizeof(double) * NU);
}

void prefix_step(const double *x, const double *u, double dt, double *x_next)
{
    double w[DYNAMICS_WORKSPACE + 1], own[step_workspace(S)], t = 0.0;
    const ctx_t c = {.w = w};
    step(S, c, (start_t){SUBSTEPS, 1, 0, x, u, x, &t, &dt, own, NULL}, x_next);
}

void prefix_linearize(const double *x, const double *u, double dt, double *x_next, double *A, double *B)
{
    double w[DYNAMICS_WORKSPACE + 1], own[step_workspace(S)], G[ND * NW], memory[linearize_workspace(S)], t = 0.0;
    const ctx_t c = {.w = w};
    linearize(S, c, (start_t){SUBSTEPS, 1, 0, x, u, x, &t, &dt, own, NULL}, x_next, G, memory, NULL, NULL);
    for (int i = 0; i < ND; i++) {
        memcpy(A + i * ND, G + i * NW, sizeof(double) * ND);
        memcpy(B + i * NU, G + i * NW + ND, sizeof(double) * NU);
    }
}

#define MAX_HALVINGS 10
#define ACCEPT_RATIO 1e-4 /* share of the expected decrease; Nocedal & Wright, eq. 3.4 */
#define NEGLIGIBLE 1e-12 /* an expected decrease, as a share of the cost, that rounding hides: no reason to raise mu */
#define MU_MIN 1e-6
#define MU_MAX 1e10
#define MU_FACTOR 10.0

static stages_t stages_of(const prefix_problem *p)
{
    const stages_t stages = {&structure, SUBSTEPS, p->t, p->dt, p->theta, p->theta, p->theta};
    return stages;
}

static end_t end_of(long N, const prefix_problem *p)
{
    const end_t end = {&structure, p->t + N, p->theta_end, p->theta_end};
    return end;
}

/* The closed-loop roll-out of xs + alpha dx, us + alpha du into w->X, w->U; returns its cost. */
static double roll_out(long N, const double *xs, const double *us, const double *K, double alpha, const prefix_problem *p,
                       prefix_workspace *w)
{
    const long start = 0, trial = 0;
    double cost, last;
    const stages_t stages = stages_of(p);
    const end_t end = end_of(N, p);
    const trials_t trials = {N, 0, xs, us, w->dx, w->du, K, w->d, p->u_lower, p->u_upper, &alpha, w->node, w->X, w->U, w->D,
                             NULL, NULL};
    const parts_t whole = {0, &start, &N, &trial, &cost};
    memset(w->node, 0, sizeof w->node);
    stage_rollout(&stages, &trials, &whole, 0, 1, w->workspace);
    end_values(&end, w->X + N * NX, 0, 1, &last, NULL, w->workspace);
    return cost + last;
}

static void keep(long N, double *xs, double *us, const prefix_workspace *w)
{
    memcpy(xs, w->X, sizeof(double) * (N + 1) * NX);
    memcpy(us, w->U, sizeof(double) * N * NU);
}

/* xs, us tracked from x0 */
static double start(long N, const double *x0, const double *xs, const double *us, const double *K, const prefix_problem *p,
                    prefix_workspace *w)
{
    memset(w->dx, 0, sizeof w->dx);
    memset(w->du, 0, sizeof w->du);
    manifold_difference(S, xs, x0, w->dx);
    for (int j = 0; j < NU; j++) /* the roll-out measures deviations from xs (+) dx */
        for (int i = 0; i < ND; i++) w->du[j] += K[j * ND + i] * w->dx[i];
    return roll_out(N, xs, us, K, 1.0, p, w);
}

static void expand(long N, const double *xs, const double *us, const prefix_problem *p, prefix_workspace *w)
{
    const stages_t stages = stages_of(p);
    const end_t end = end_of(N, p);
    const point_t at = {xs, us, xs + NX};
    const first_t first = {{w->x_next, w->d, w->cost, NULL}, w->A, w->B, w->q, w->r, NULL, NULL, w->Q, w->S, w->R, NULL};
    const end_first_t last = {w->cost + N, NULL, w->q + N * ND, NULL, w->Q + N * ND * ND};
    stage_first(&stages, &at, 0, N, &first, w->workspace);
    end_first(&end, xs + N * NX, &last, w->workspace);
}

static void raise_mu(prefix_workspace *w) { w->mu = w->mu > 0.0 ? w->mu * MU_FACTOR : MU_MIN; }

static void lower_mu(prefix_workspace *w)
{
    w->mu /= MU_FACTOR;
    if (w->mu < MU_MIN) w->mu = 0.0;
}

/* The expansion in the workspace. */
static lq_problem expansion(long N, const prefix_workspace *w)
{
    return (lq_problem){w->A, w->B, w->d, w->Q, w->q, w->S, w->R, w->r, N, {N_, M_}};
}

static lq_policy found_policy(prefix_workspace *w) { return (lq_policy){w->K, w->k, w->Vx, w->Vxx}; }

/* The policy within the bounds on us + du, around dx = 0; returns the knot where Quu is not positive definite, or -1. */
static long bounded_policy(long N, const double *us, const prefix_problem *p, prefix_workspace *w)
{
    const lq_problem lq = expansion(N, w);
    const lq_policy to = found_policy(w);
    const lq_bounds bounds = {w->lower, w->upper};
    for (long i = 0; i < N * NU; i++) w->lower[i] = p->u_lower[i] - us[i], w->upper[i] = p->u_upper[i] - us[i];
    memset(w->dx, 0, sizeof(double) * ND);
    const long failed = lq_bounded(&lq, &bounds, 0.0, w->mu, &to, w->dx, w->du, w->bounded);
    if (failed >= 0) return failed;
    for (long i = 0; i < N; i++) /* the policy is around dx, du */
        for (int j = 0; j < NU; j++) {
            double *k = w->k + i * NU + j;
            *k = w->du[i * NU + j];
            for (int l = 0; l < ND; l++) *k -= w->K[(i * NU + j) * ND + l] * w->dx[i * ND + l];
        }
    return -1;
}

/* The policy, within the bounds if there are any; returns the knot where Quu is not positive definite, or -1. */
static long any_policy(long N, const double *us, const prefix_problem *p, prefix_workspace *w)
{
    const lq_problem lq = expansion(N, w);
    const lq_policy to = found_policy(w);
    return p->u_lower ? bounded_policy(N, us, p, w) : lq_riccati(&lq, NULL, 0.0, w->mu, NULL, &to);
}

/* The policy into w->K, w->k, with mu raised until Quu is positive definite at every knot; 0 where that fails. */
static int policy(long N, const double *us, const prefix_problem *p, prefix_workspace *w)
{
    while (any_policy(N, us, p, w) >= 0) {
        raise_mu(w);
        if (w->mu > MU_MAX) {
            w->mu = MU_MAX;
            return 0;
        }
    }
    return 1;
}

/* Returns the cost of w->X, w->U, or the given cost, with w->alpha = 0 and mu raised, where no step is good enough. */
static double search(long N, const double *xs, const double *us, double cost, const prefix_problem *p, prefix_workspace *w)
{
    const lq_problem lq = expansion(N, w);
    const lq_policy along = found_policy(w);
    double change[2];
    memset(w->dx, 0, sizeof(double) * ND);
    lq_rollout(&lq, NULL, &along, w->dx, w->du, change);
    w->alpha = 1.0;
    for (int i = 0; i <= MAX_HALVINGS; i++, w->alpha *= 0.5) {
        const double expected = w->alpha * (change[0] + 0.5 * w->alpha * change[1]);
        const double found = roll_out(N, xs, us, w->K, w->alpha, p, w);
        if (expected < 0.0 && found - cost <= ACCEPT_RATIO * expected) return found;
    }
    w->alpha = 0.0;
    if (change[0] + 0.5 * change[1] < -NEGLIGIBLE * fabs(cost) && w->mu < MU_MAX) raise_mu(w);
    return cost;
}

double prefix_slq_step(long horizon, const double *x0, double *xs, double *us, const prefix_problem *problem, double *K, double *k,
                       prefix_workspace *workspace)
{
    const long N = horizon;
    prefix_workspace *w = workspace;
    if (N < 1 || N > PREFIX_HORIZON) return NAN;
    double cost = start(N, x0, xs, us, K, problem, w);
    w->alpha = 0.0;
    if (!(fabs(cost) <= 1e300)) return NAN;
    keep(N, xs, us, w);
    expand(N, xs, us, problem, w);
    if (!policy(N, us, problem, w)) return cost;
    memcpy(K, w->K, sizeof(double) * N * NU * ND);
    memcpy(k, w->k, sizeof(double) * N * NU);
    cost = search(N, xs, us, cost, problem, w);
    if (w->alpha > 0.0) {
        keep(N, xs, us, w);
        lower_mu(w);
    }
    return cost;
}
