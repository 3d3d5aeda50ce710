/* The kernels of LQ problems that those of slots and windows call.  Before this text stand lq_types.h and equality_types.h; definitions are in
   riccati.h, bounded_lq.h and directions.h. */
#pragma once
#include "lq_types.h"

long lq_riccati(const lq_problem *p, const lq_bounds *bounds, double on_state, double on_control, const void *changes, const lq_policy *policy);
void lq_stationarity(const lq_problem *p, const double *K, double *lambda, double *g, double *size);
int lq_finite(const lq_problem *p);
void lq_rollout(const lq_problem *p, const lq_bounds *bounds, const lq_policy *policy, double *dx, double *du, double *change);
long lq_bounded(const lq_problem *p, const lq_bounds *bounds, double on_state, double on_control, const lq_policy *policy, double *dx, double *du,
                double *workspace);

/* With a problem in each lane. */
void lq_directions(lq_direction *lanes, lq_size dims, long N, lq_expand *expand, void *of, void *workspace);
