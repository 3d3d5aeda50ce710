/* Function of vectors over lanes.  in, out: its arguments and results, arrays of vectors; w: workspace.  self: data of the function, for
   example tables of a robot.  run is NULL for a function without results.  run_blocks, if not NULL, evaluates several blocks of lanes in one
   call, whose arguments and results are `apart` vectors apart; up to 8 blocks, there is memory for the next power of two. */
#pragma once
#include "vectors.h"

typedef void run_t(const void *self, const V *const *in, V *const *out, V *w);
typedef void run_blocks_t(const void *self, const V *const *in, V *const *out, V *w, int blocks, long apart);
typedef struct {
    run_t *run;
    const void *self;
    run_blocks_t *run_blocks;
} function_t;

static inline void call(function_t f, const V *const *in, V *const *out, V *w)
{
    if (f.run) f.run(f.self, in, out, w);
}

/* Most arguments and most results of a function that is called for several blocks. */
#define MOST_ARGUMENTS 8

/* Call a function of `ins` arguments and `outs` results for several blocks. */
static inline void call_blocks(function_t f, int ins, int outs, const V *const *in, V *const *out, V *w, int blocks, long apart)
{
    if (f.run_blocks) {
        f.run_blocks(f.self, in, out, w, blocks, apart);
        return;
    }
    for (int j = 0; j < blocks; j++) {
        const V *from[MOST_ARGUMENTS];
        V *to[MOST_ARGUMENTS];
        for (int i = 0; i < ins; i++) from[i] = in[i] + j * apart;
        for (int i = 0; i < outs; i++) to[i] = out[i] + j * apart;
        call(f, from, to, w);
    }
}

#define IN(...) (const V *const[]){__VA_ARGS__}
#define OUT(...) (V *const[]){__VA_ARGS__}
