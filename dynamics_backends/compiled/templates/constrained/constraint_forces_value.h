/* Constraint forces. Required before this text: the straight-line code forces_alone(c, x, u, t, p, y). */

static void forces_value(const V *x, const V *u, V t, V *y, V *w)
{
    forces_alone((ctx_t){.w = w}, x, u, t, NULL, y);
}
