/* What one problem's iteration decides, as scalars: merit, acceptance and regularization of
   trajopt/solvers/rules/{line_search,regularization}.py, with their constants. */

/* See the options of the same names. */
typedef struct {
    double gradient_tolerance, defect_tolerance, cost_tolerance, accept_ratio, factor, smallest, largest;
    long on_state, max_backtracks;
} options_t;

/* What outlives an iteration: the penalty of the merit, mu and its rate of change, iterations decided by gradients without progress,
   and Drift of line_search.py. */
typedef struct {
    double penalty, mu, delta, drift_gap;
    long idle, drift;
} globalization_t;

/* A step: the cost along it changes by alpha D1 + alpha^2/2 D2, and gaps of l1 norm `gap` close. */
typedef struct {
    double D1, D2, gap;
} model_t;

/* What a search found: accepted or the best refused; row: of the trajectories that were tried. */
typedef struct {
    int accepted;
    long row;
    double alpha, expected, actual;
} found_t;

static void adapt(globalization_t *g, model_t step)
{
    if (step.gap == 0.0) return;
    const double needed = (step.D1 + 0.5 * fmax(step.D2, 0.0)) / ((1.0 - PENALTY_MARGIN) * step.gap);
    if (needed > g->penalty) g->penalty = needed;
}

static double expected_decrease(const globalization_t *g, double alpha, model_t step)
{
    return -(alpha * step.D1 + 0.5 * alpha * alpha * step.D2) + alpha * g->penalty * step.gap;
}

/* The expected decrease of the full step as a share of the merit phi. */
static double promise(const globalization_t *g, model_t step, double phi)
{
    return phi != 0.0 ? fabs(expected_decrease(g, 1.0, step)) / fabs(phi) : HUGE_VAL;
}

static void raise_mu(globalization_t *g, const options_t *o)
{
    g->delta = fmax(o->factor, g->delta * o->factor);
    g->mu = fmin(fmax(o->smallest, g->mu * g->delta), o->largest);
}

static void lower_mu(globalization_t *g, const options_t *o)
{
    g->delta = fmin(1.0 / o->factor, g->delta / o->factor);
    const double mu = g->mu * g->delta;
    g->mu = mu >= o->smallest ? mu : 0.0;
}

/* Whether open gaps, of l1 norm `gap`, are given up behind a step of a length, 0 for one that was refused: see Drift of line_search.py. */
static int adrift(globalization_t *g, double alpha, double gap)
{
    if (g->drift == 0 || gap < CLOSING * g->drift_gap) g->drift = 0, g->drift_gap = gap;
    g->drift = alpha > DRIFTING ? 0 : g->drift + 1;
    return g->drift > ADRIFT;
}

static int acceptable(const options_t *o, double expected, double actual)
{
    return actual >= o->accept_ratio * expected && expected > 0.0;
}
