/* An example: steps of SLQ from a trajectory that obeys the dynamics, under gains K where it is unstable without. */
#include <stdio.h>

#include "prefix.h"

enum { STEPS = 20 };

static double xs[(PREFIX_HORIZON + 1) * PREFIX_NX] = @STATES@;
static double us[PREFIX_HORIZON * PREFIX_NU] = @CONTROLS@;
static double K[PREFIX_HORIZON * PREFIX_NU * PREFIX_NDX]@GAINS@;
static double k[PREFIX_HORIZON * PREFIX_NU];
static prefix_workspace workspace;

int main(void)
{
    for (int i = 0; i < STEPS; i++) {
        const double cost =
            prefix_slq_step(PREFIX_HORIZON, prefix_default_x0, xs, us, &prefix_default_problem, K, k, &workspace);
        if (cost != cost) {
            fprintf(stderr, "step %d: the trajectory diverges from prefix_default_x0 under us and K\n", i + 1);
            return 1;
        }
        printf("%3d  cost %.15g  alpha %g\n", i + 1, cost, workspace.alpha);
    }
    return 0;
}
