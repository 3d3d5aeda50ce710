/* The forces of constrained motion, behind forces_alone(c, x, u, t, p, y): straight-line code. */

static void forces_value(const V *x, const V *u, V t, V *y, V *w)
{
    forces_alone((ctx_t){.w = w}, x, u, t, NULL, y);
}
