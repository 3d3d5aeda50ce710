/* Shared by the kernels of all slots: a clock, the timed parts of the work, and the arguments of second derivatives of stages. */
#pragma once
#include <time.h>

enum { DERIVATIVES, BACKWARD, ROLLOUT };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
