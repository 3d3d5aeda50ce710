/* Structure of a phase: sizes, manifold, integration scheme, and the functions of its dynamics, cost terms and constraints.  The kernels
   of this folder take it as S, and read the sizes through the macros below. */
#pragma once
#include "functions.h"
#include "../../../dynamics_backends/compiled/templates/lanes/groups.h"
#include "../../../dynamics_backends/compiled/templates/lanes/prelude.h"

/* nx, nd: sizes of a state and of a tangent vector.  mu, nu: controls of the dynamics and of the problem.  ne: offsets of damped velocities,
   which follow the controls of the dynamics if damping is implicit; the implicit step then follows the parameters.  np, nt, ntt, npg,
   npgt: parameters of the dynamics, of running and terminal terms, of path and final constraints.  ng, ngt: rows of these.  curved: the
   factors that are groups; matrices: vectors of their matrices.  workspace: vectors that the functions need, registers: those of a
   block of those that take several blocks.  stages, A, B, C: Runge-Kutta
   method, AI its implicit damping.  jump: f is a jump of the state.  semi_implicit: positions are integrated with the velocities at the end
   of the step. */
typedef struct {
    const functions_t *functions;
    const factor_t *factors, *curved;
    const double *A, *B, *C, *AI;
    long workspace, registers;
    int nx, nd, mu, nu, ne, np, nt, ntt, npg, npgt, ng, ngt, n_factors, groups, matrices, stages, jump, semi_implicit, implicit;
} structure_t;

#define NX (S->nx)
#define ND (S->nd)
#define MU (S->mu)
#define NU (S->nu)
#define NF (S->functions->rows)
#define NE (S->ne)
#define NP (S->np)
#define NT (S->nt)
#define NTT (S->ntt)
#define NPG (S->npg)
#define NPGT (S->npgt)
#define NG (S->ng)
#define NGT (S->ngt)
#define FORCES (S->functions->force_rows)
#define FORCES_WORKSPACE (FORCES * (1 + S->functions->force_columns)) /* the forces, and their derivatives behind them */
#define CURVED_FORCES (S->functions->curved_forces ? FORCES : 0)
#define LIE_GROUPS (S->groups)
#define LIE_WORKSPACE (S->matrices)
#define STAGES (S->stages)
#define NV (NE ? NE : ND / 2) /* the state may continue after q and v, for example with durations */
#define ME (MU + NE) /* controls of the dynamics with the offset */
#define NW (ND + MU)
#define LARGER(a, b) ((a) > (b) ? (a) : (b))

/* The next `count` vectors of the workspace *at. */
static inline V *carved(V **at, long count)
{
    V *const start = *at;
    *at += count;
    return start;
}

static inline void copy(V *restrict to, const V *restrict from, long count) { memcpy(to, from, sizeof(V) * count); }

static inline void clear(V *to, long count) { memset(to, 0, sizeof(V) * count); }

/* y = x (+) d */
static void manifold_integrate(const structure_t *S, const V *x, const V *d, V *y)
{
    for (int k = 0; k < S->n_factors; k++) {
        const factor_t f = S->factors[k];
        if (f.group) f.group->integrate(x + f.q, d + f.v, y + f.q);
        else for (int i = 0; i < f.nv; i++) y[f.q + i] = x[f.q + i] + d[f.v + i];
    }
}

/* d = y (-) x */
static void manifold_difference(const structure_t *S, const V *x, const V *y, V *d)
{
    for (int k = 0; k < S->n_factors; k++) {
        const factor_t f = S->factors[k];
        if (f.group) f.group->difference(x + f.q, y + f.q, d + f.v);
        else for (int i = 0; i < f.nv; i++) d[f.v + i] = y[f.q + i] - x[f.q + i];
    }
}

/* Matrices of all groups, one after the other: the functions of groups.h at the tangent vectors d. */
#define EACH_GROUP(call) \
    for (int g = 0; g < LIE_GROUPS; g++) { const factor_t f = S->curved[g]; f.group->call; }

static void manifold_transport(const structure_t *S, const V *d, V *M) { EACH_GROUP(transport(d + f.v, M + f.block)) }

static void manifold_dexp(const structure_t *S, const V *d, V *M) { EACH_GROUP(dexp(d + f.v, M + f.block)) }

static void manifold_dexp_inv(const structure_t *S, const V *d, V *M) { EACH_GROUP(dexp_inv(d + f.v, M + f.block)) }

static void manifold_d_dexp_inv(const structure_t *S, const V *d, const V *k, V *M) { EACH_GROUP(d_dexp_inv(d + f.v, k + f.v, M + f.block)) }

static void manifold_integrate_hessian(const structure_t *S, const V *d, const V *l, V *ye, V *ee)
{
    EACH_GROUP(integrate_hessian(d + f.v, l + f.v, ye + f.block, ee + f.block))
}

static void manifold_dexp_inv_hessian(const structure_t *S, const V *d, const V *k, const V *l, V *dk, V *dd)
{
    EACH_GROUP(dexp_inv_hessian(d + f.v, k + f.v, l + f.v, dk + f.block, dd + f.block))
}

static void manifold_difference_hessian(const structure_t *S, const V *d, const V *l, V *M)
{
    EACH_GROUP(difference_hessian(d + f.v, l + f.v, M + f.block))
}
