/* An example: steps of SLQ from the guess of the exported problem. */
#include <stdio.h>
#include <string.h>

#include "prefix.h"

enum { STEPS = 20 };

static double us[PREFIX_HORIZON * PREFIX_NU] = @GUESS@;
static double xs[(PREFIX_HORIZON + 1) * PREFIX_NX];
static double K[PREFIX_HORIZON * PREFIX_NU * PREFIX_NDX], k[PREFIX_HORIZON * PREFIX_NU];
static prefix_workspace workspace;

int main(void)
{
    for (int i = 0; i <= PREFIX_HORIZON; i++) /* states, all of them: a quaternion of zeros is none */
        memcpy(xs + i * PREFIX_NX, prefix_default_x0, sizeof prefix_default_x0);
    for (int i = 0; i < STEPS; i++) {
        const double cost =
            prefix_slq_step(PREFIX_HORIZON, prefix_default_x0, xs, us, &prefix_default_problem, K, k, &workspace);
        printf("%3d  cost %.15g  alpha %g\n", i + 1, cost, workspace.alpha);
        if (cost != cost) return 1;
    }
    return 0;
}
