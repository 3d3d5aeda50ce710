/* What the kernels of all slots share: the clock, the parts of the work that it times, and what stages are asked for as second derivatives. */
#include <time.h>

enum { DERIVATIVES, BACKWARD, ROLLOUT };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* second_t of stage.h */
typedef struct {
    double sigma;
    const double *lam, *y;
    void *kept;
    double *xx, *ux, *uu;
} curved_t;
