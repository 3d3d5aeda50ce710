/* dynamics_partials of free rigid bodies. Required before this text: free_body.h and the kernel fdsva, called by FREE_FDSVA.
   Workspace in addition to the kernel's: 3 nv^2 vectors. */

static void dynamics_partials(ctx_t c, const V *x, const V *u, V t, const V *p, V *f, V *fx, V *fu)
{
    enum { nv = FREE_NV, nq = FREE_NQ };
    const V *v = x + nq;
    V tau[nv], rotors[nv], q[nq];
    V *dq = c.w, *dv = dq + nv * nv, *inverse = dv + nv * nv, *w = inverse + nv * nv;
    (void)t;
    free_rotors(p, rotors);
    at_base(x, q);
    joint_forces(x, v, u, tau);
    FREE_FDSVA(q, v, tau, NULL, rotors, f, dq, dv, inverse, w);
    first_derivatives(x, u, dq, dv, inverse, fx, fu);
}
