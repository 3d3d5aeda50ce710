/* Bounds on the controls as a logarithmic barrier with multipliers: see trajopt/solvers/window/barrier.py, whose constants stand before this
   text.

   us, lower, upper: `count` numbers; z: twice as many, those of the lower bounds first. */

typedef struct {
    const double *lower, *upper;
    double *z, mu;
    long count;
} barrier_t;

/* fmax and fmin are calls, which also order zeros; both of these keep `most` or `least` where x is no number. */
static inline double larger(double most, double x) { return x > most ? x : most; }
static inline double smaller(double least, double x) { return x < least ? x : least; }

static double slack(const barrier_t *b, const double *us, int side, long i) { return side ? b->upper[i] - us[i] : us[i] - b->lower[i]; }

static double width_of(const barrier_t *b, long i)
{
    const double width = b->upper[i] - b->lower[i];
    return isfinite(width) ? width : 1.0;
}

/* Controls moved into the interior. */
static void barrier_interior(const barrier_t *b, double *us)
{
    for (long i = 0; i < b->count; i++) {
        const double own = b->upper[i] - b->lower[i], push = PUSH * (isfinite(own) ? own : fmax(1.0, fabs(us[i])));
        us[i] = fmin(fmax(us[i], b->lower[i] + push), b->upper[i] - push);
    }
}

/* Multipliers mu / slack. */
static void barrier_multipliers(const barrier_t *b, const double *us)
{
    for (int side = 0; side < 2; side++)
        for (long i = 0; i < b->count; i++) b->z[side * b->count + i] = b->mu / slack(b, us, side, i);
}

/* What a factor of a product, and the product of many, may be without a loss. */
#define FACTOR 1e50
#define PRODUCT_OF_FACTORS 1e200

/* The barrier's value for mu = 1, infinite outside of the interior; logarithms of products, since these cost less. */
static double barrier_logs(const barrier_t *b, const double *us)
{
    double sum = 0.0, product = 1.0;
    for (int side = 0; side < 2; side++)
        for (long i = 0; i < b->count; i++) {
            const double share = slack(b, us, side, i) / width_of(b, i);
            if (!(share > 0.0)) return HUGE_VAL;
            if (share > FACTOR || share < 1.0 / FACTOR) {
                if (isfinite(share)) sum += log(share);
                continue;
            }
            product *= share;
            if (product < PRODUCT_OF_FACTORS && product > 1.0 / PRODUCT_OF_FACTORS) continue;
            sum += log(product), product = 1.0;
        }
    return -(sum + log(product));
}

/* The curvature at a control with these slacks. */
static double bend_of(const barrier_t *b, double below, double above, long i) { return b->z[i] / below + b->z[b->count + i] / above; }

/* Add the gradient to r, and the curvature to the diagonals of R (N, m, m). */
static void barrier_impose(const barrier_t *b, const double *us, long m, double *R, double *r)
{
    for (long i = 0; i < b->count; i++) {
        const double below = slack(b, us, 0, i), above = slack(b, us, 1, i);
        R[(i / m * m + i % m) * m + i % m] += bend_of(b, below, above, i);
        r[i] = r[i] - b->mu / below + b->mu / above;
    }
}

/* The same apart, whatever mu will be: the curvature, the gradient by mu, and the force of the multipliers. */
static void barrier_apart(const barrier_t *b, const double *us, double *bend, double *push, double *pull)
{
    for (long i = 0; i < b->count; i++) {
        const double below = slack(b, us, 0, i), above = slack(b, us, 1, i);
        bend[i] = bend_of(b, below, above, i);
        push[i] = 1.0 / above - 1.0 / below;
        pull[i] = b->z[b->count + i] - b->z[i];
    }
}

/* The least and the greatest product of a multiplier and its slack. */
static void barrier_products(const barrier_t *b, const double *us, double *least, double *greatest)
{
    for (int side = 0; side < 2; side++)
        for (long i = 0; i < b->count; i++) {
            const double own = slack(b, us, side, i);
            if (!isfinite(own)) continue;
            const double product = b->z[side * b->count + i] * own;
            *least = smaller(*least, product), *greatest = larger(*greatest, product);
        }
}

static double barrier_reach(double value, double move) { return move < 0.0 ? -TAU * value / move : 1.0; }

/* The longest step that leaves a share of every slack. */
static double barrier_longest(const barrier_t *b, const double *us, const double *du)
{
    double longest = 1.0;
    for (int side = 0; side < 2; side++)
        for (long i = 0; i < b->count; i++) longest = smaller(longest, barrier_reach(slack(b, us, side, i), side ? -du[i] : du[i]));
    return longest;
}

/* Move the multipliers by their own step for a step du from us; new: the controls accepted; room: twice the count. */
static void barrier_stepped(const barrier_t *b, const double *us, const double *du, const double *new, double *room)
{
    double longest = 1.0;
    for (int side = 0; side < 2; side++)
        for (long i = 0; i < b->count; i++) {
            const long at = side * b->count + i;
            const double own = slack(b, us, side, i), z = b->z[at];
            room[at] = b->mu / own - z - z / own * (side ? -du[i] : du[i]);
            longest = smaller(longest, barrier_reach(z, room[at]));
        }
    for (int side = 0; side < 2; side++)
        for (long i = 0; i < b->count; i++) {
            const long at = side * b->count + i;
            const double ahead = b->mu / slack(b, new, side, i);
            b->z[at] = smaller(ahead * KAPPA_SIGMA, larger(ahead / KAPPA_SIGMA, b->z[at] + longest * room[at]));
        }
}

/* Whether a multiplier holds a control on its bound: of the lower one 1, of the upper one 2, else 0. */
static int barrier_holds(const barrier_t *b, const double *us, long i)
{
    for (int side = 0; side < 2; side++) {
        const double width = width_of(b, i);
        if (slack(b, us, side, i) <= HELD * width && b->z[side * b->count + i] * width > b->mu / HELD) return side + 1;
    }
    return 0;
}
