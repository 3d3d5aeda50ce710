/* dynamics_value of constrained motion. Required before this text: VALUE_FORCES, the number of forces y, and value_and_forces(c,
   x, u, t, p, f, y). */

static void dynamics_value(ctx_t c, const V *x, const V *u, V t, const V *p, V *f)
{
    V unasked[VALUE_FORCES];
    value_and_forces(c, x, u, t, p, f, c.forces ? c.forces : unasked);
}
