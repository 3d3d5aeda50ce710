/* Function of vectors over lanes.  in, out: its arguments and results, arrays of vectors; w: workspace.  self: data of the function, for
   example tables of a robot.  run is NULL for a function without results. */
typedef void run_t(const void *self, const V *const *in, V *const *out, V *w);
typedef struct {
    run_t *run;
    const void *self;
} function_t;

static inline void call(function_t f, const V *const *in, V *const *out, V *w)
{
    if (f.run) f.run(f.self, in, out, w);
}

#define IN(...) (const V *const[]){__VA_ARGS__}
#define OUT(...) (V *const[]){__VA_ARGS__}
