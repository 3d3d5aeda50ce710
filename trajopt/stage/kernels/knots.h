/* A block of knots in the lanes: knots n, n + 1, .. of one problem, whose rows are contiguous. */
#pragma once
#include "curvature.h"
#include "../../../dynamics_backends/compiled/templates/lanes/rows.h"

/* Inputs and results of a block of knots.  next, d: state after the time step, and its difference from the node.  phi, lff: gradient and Hessian of the
   cost in the contact forces.  hxx, hux, huu: second derivatives of the path constraints.  The last row of members is shared by all blocks: a workspace, and unless the dynamics take several
   blocks, the sensitivities of the time step and its workspaces. */
typedef struct {
    V *x, *node, *u, *p, *theta, *pg, *t, *dt, *forces, *next, *d;
    V *l, *lx, *lu, *lxx, *lux, *luu, *phi, *lff, *g, *gx, *gu, *hxx, *hux, *huu;
    V *block, *G, *own, *scratch;
} knot_t;

/* 1 if the dynamics are evaluated for several blocks together. */
#define STEPS_TOGETHER (S->functions->dynamics_partials.run_blocks != NULL)

static void carve_step(const structure_t *S, V **w, knot_t *k)
{
    k->G = carved(w, ND * NW), k->own = carved(w, step_workspace(S)), k->scratch = carved(w, linearize_workspace(S));
}

/* Members of one block in the workspace *w, which then continues behind them. */
static void carve_knot(const structure_t *S, V **w, knot_t *k)
{
    const int rows = LARGER(NG, NGT), curved = S->functions->path_second.run != NULL;
    k->x = carved(w, NX), k->node = carved(w, NX), k->u = carved(w, NU), k->p = carved(w, NP), k->theta = carved(w, LARGER(NT, NTT));
    k->pg = carved(w, LARGER(NPG, NPGT)), k->t = carved(w, 1), k->dt = carved(w, 1), k->forces = carved(w, FORCES_WORKSPACE);
    k->next = carved(w, NX), k->d = carved(w, ND);
    k->l = carved(w, 1), k->lx = carved(w, ND), k->lu = carved(w, NU), k->lxx = carved(w, ND * ND), k->lux = carved(w, NU * ND);
    k->luu = carved(w, NU * NU), k->phi = carved(w, FORCES), k->lff = carved(w, FORCES * FORCES);
    k->g = carved(w, rows), k->gx = carved(w, rows * ND);
    k->gu = carved(w, NG * NU), k->hxx = carved(w, curved * ND * ND), k->hux = carved(w, curved * NU * ND);
    k->huu = carved(w, curved * NU * NU);
    if (STEPS_TOGETHER) carve_step(S, w, k);
}

/* Vectors of a block. */
static long knot_size(const structure_t *S)
{
    knot_t k;
    V *start = NULL, *end = start;
    carve_knot(S, &end, &k);
    return end - start;
}

#define MAX_BLOCKS 8

/* Blocks in the workspace, whose functions are evaluated together if that is faster; a power of two.  They take at most
   2 MB, about the size of a second-level cache. */
static int blocks_together(const structure_t *S)
{
    int blocks = 1;
    if (!S->functions->running_expand.run_blocks && !S->functions->path_first.run_blocks && !STEPS_TOGETHER) return blocks;
    while (blocks < MAX_BLOCKS && 2 * blocks * LANES <= 64 && 2 * blocks * knot_size(S) * LANES <= 1L << 18) blocks *= 2;
    return blocks;
}

/* The first block in the workspace *w, which then continues behind all blocks. */
static knot_t carved_knots(const structure_t *S, V **w)
{
    const int most = LARGER(ND, NU);
    knot_t k;
    k.block = carved(w, LARGER(most * most, FORCES_WORKSPACE));
    if (!STEPS_TOGETHER) carve_step(S, w, &k);
    carve_knot(S, w, &k);
    carved(w, (blocks_together(S) - 1) * knot_size(S));
    return k;
}

/* Block j of the workspace that begins with the block k. */
static knot_t nth_block(const structure_t *S, knot_t k, int j)
{
    V *w = k.x + j * knot_size(S);
    carve_knot(S, &w, &k);
    return k;
}

/* Workspace of carved_knots in vectors. */
static long knots_workspace(const structure_t *S)
{
    V *start = NULL, *end = start;
    carved_knots(S, &end);
    return end - start;
}

/* Call a function for `count` blocks, from block k on, with the pointers to its arguments and results in that block. */
#define ARGUMENTS(...) (sizeof((const V *const[]){__VA_ARGS__}) / sizeof(V *))
#define CALL_BLOCKS(function, count, in, out) \
    call_blocks(function, ARGUMENTS in, ARGUMENTS out, IN in, OUT out, w, count, knot_size(S))

/* x <- rows of `width` numbers of an array, of the knots from n on */
#define LOAD(array, n, width, count, x) pack((array) + (n) * (width), width, count, x);
#define STORE(x, width, count, n, array) put_rows(x, width, count, n, array);

/* Store rows of `width` numbers from knot n on, unless `out` is NULL. */
ALWAYS_INLINE void put_rows(const V *v, long width, int count, long n, double *out)
{
    if (out) unpack(v, width, count, out + n * width);
}

/* Lanes in use of the block that begins at knot n. */
static int lanes_used(long n, long last) { return last - n >= LANES ? LANES : (int)(last - n); }

/* Load the inputs of the block that begins at knot n; returns the number of lanes in use. */
static int load_knots(const structure_t *S, const stages_t *s, const point_t *at, long n, long last, const knot_t *k)
{
    const int count = lanes_used(n, last);
    LOAD(at->xs, n, NX, count, k->x)
    LOAD(at->nodes, n, NX, count, k->node)
    LOAD(at->us, n, NU, count, k->u)
    LOAD(s->p, n, NP, count, k->p)
    LOAD(s->theta, n, NT, count, k->theta)
    LOAD(s->pg, n, NPG, count, k->pg)
    LOAD(s->t, n, 1, count, k->t)
    LOAD(s->dt, n, 1, count, k->dt)
    return count;
}
