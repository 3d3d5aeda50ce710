/* Running cost of which some terms are functions of the contact forces y of the time step.  Include function.h and inner_maps.h before this
   file.

   value, expand: x, u, t, dt, theta, y -> l, and -> l, lx, lu, lxx, lux, luu, g, H, where g and H are the gradient and the Hessian in y.  rows: of y; columns: of its derivative in (x, u).  ndx, nu: sizes of the tangent vector and of the controls.
   curved_forces: 1 if second derivatives of the step contain those of g' y, and receive g. */
typedef struct {
    function_t value, expand;
    int rows, columns, ndx, nu, curved_forces;
} forces_cost_t;

/* Workspace in vectors beside that of value and expand. */
EXPORT long forces_cost_workspace(const forces_cost_t *s) { return s->rows * (1 + s->rows + s->columns); }

/* running_value of functions.h */
EXPORT void forces_cost_value(const void *self, const V *const *in, V *const *out, V *w)
{
    const forces_cost_t *s = self;
    call(s->value, in, out, w);
}

/* running_expand of functions.h */
EXPORT void forces_cost_expand(const void *self, const V *const *in, V *const *out, V *w)
{
    const forces_cost_t *s = self;
    V *g = w, *H = g + s->rows, *T = H + s->rows * s->rows;
    V *const to[] = {out[0], out[1], out[2], out[3], out[4], out[5], g, H};
    call(s->expand, in, to, T + s->rows * s->columns);
    add_inner((inner_t){s->rows, s->columns, s->ndx, s->nu, g, H, in[5] + s->rows}, (expanded_t){out[1], out[2], out[3], out[4], out[5]}, T);
    if (s->curved_forces) memcpy(out[6], g, s->rows * sizeof *g);
}
