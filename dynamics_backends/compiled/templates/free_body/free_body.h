/* Dynamics of free rigid bodies by loops over tables, with sizes read at run time, so that one text serves every robot: the functions
   dynamics_value, dynamics_partials and dynamics_contracted of function.h, for the rows below qdot = v.

   rigid_body_programs.h contains the recursions, as macros FORWARD_DYNAMICS, FDSVA, FD_SECOND_ORDER with named arguments. */
#pragma once
#include "rigid_body_programs.h"
#include "../lanes/function.h"
#include "../lanes/prelude.h"
#include "../linear_algebra/ltl.h"
#include "../linear_algebra/tensors.h"

/* A robot.  ti, td: the tables of loops.h.  driven, share (nu): degree of freedom that each control drives, and its force per unit of
   control; the controls may be followed by offsets of damped velocities.  By degree of freedom: viscous, coulomb, stiffness, rest, place
   (index of the spring's position in q), rotor, and damped (implicit damping).  slip: velocity of friction [rad/s].  step: position of the
   implicit step in p, or -1. */
typedef struct {
    const int *const *ti;
    const double *const *td;
    const int *driven, *place;
    const double *share, *viscous, *coulomb, *stiffness, *rest, *rotor, *damped;
    double slip;
    long nv, nq, nu, step, floating;
} free_body_t;

/* Workspaces of the kernels, shared by the functions below: tau, rotors, slope and second (nv), q about a floating base. */
typedef struct {
    V *tau, *rotors, *slope, *second, *q;
} free_inputs_t;

#define FREE_INPUTS_WORKSPACE(nv, nq) (4 * (nv) + (nq))

/* Joint forces tau(q, v, u) with their first and second derivatives in v, rotor inertias with implicit damping, and q with the position of
   a floating base at the origin. */
static free_inputs_t free_inputs(const free_body_t *s, const V *x, const V *u, const V *p, V *w)
{
    const int nv = s->nv, nq = s->nq, nu = s->nu;
    const V *v = x + nq, h = s->step < 0 ? ZERO : p[s->step];
    const free_inputs_t to = {w, w + nv, w + 2 * nv, w + 3 * nv, w + 4 * nv};
    for (int d = 0; d < nv; d++) to.tau[d] = ZERO;
    for (int i = 0; i < nu; i++) to.tau[s->driven[i]] += s->share[i] * u[i];
    for (int d = 0; d < nv; d++) {
        to.tau[d] -= s->viscous[d] * v[d];
        to.slope[d] = splat(-s->viscous[d]), to.second[d] = ZERO;
        if (s->coulomb[d] != 0.0) {
            const V t = v_tanh(v[d] / s->slip), rise = s->coulomb[d] * (1.0 - t * t) / s->slip;
            to.tau[d] -= s->coulomb[d] * t;
            to.slope[d] -= rise;
            to.second[d] += 2.0 * t * rise / s->slip;
        }
        if (s->stiffness[d] != 0.0) to.tau[d] -= s->stiffness[d] * (x[s->place[d]] - s->rest[d]);
        to.rotors[d] = s->rotor[d] + h * s->damped[d];
    }
    memcpy(to.q, x, sizeof(V) * nq);
    if (s->floating) memset(to.q, 0, sizeof(V) * 3);
    return to;
}

static void free_body_value(const void *self, const V *const *in, V *const *out, V *w)
{
    const free_body_t *s = self;
    const V *x = in[0];
    const free_inputs_t a = free_inputs(s, x, in[1], in[3], w);
    FORWARD_DYNAMICS(s, a.q, x + s->nq, a.tau, NULL, a.rotors, out[0], w + FREE_INPUTS_WORKSPACE(s->nv, s->nq));
}

/* fx (nv x 2 nv) and fu (nv x nu) from the derivatives dq, dv and inverse of a in q, v and tau (nv x nv each) */
static void free_slopes(const free_body_t *s, const V *slope, const V *dq, const V *dv, const V *inverse, V *restrict fx, V *restrict fu)
{
    const int nv = s->nv, nu = s->nu;
    for (int i = 0; i < nv; i++) {
        for (int j = 0; j < nv; j++) {
            fx[i * 2 * nv + j] = dq[i * nv + j] - inverse[i * nv + j] * s->stiffness[j];
            fx[i * 2 * nv + nv + j] = dv[i * nv + j] + inverse[i * nv + j] * slope[j];
        }
        for (int j = 0; j < nu; j++) fu[i * nu + j] = s->share[j] * inverse[i * nv + s->driven[j]];
    }
}

static void free_body_partials(const void *self, const V *const *in, V *const *out, V *w)
{
    const free_body_t *s = self;
    const int nv = s->nv, nq = s->nq;
    const V *x = in[0];
    const free_inputs_t a = free_inputs(s, x, in[1], in[3], w);
    V *dq = w + FREE_INPUTS_WORKSPACE(nv, nq), *dv = dq + nv * nv, *inverse = dv + nv * nv;
    FDSVA(s, a.q, x + nq, a.tau, NULL, a.rotors, out[0], dq, dv, inverse, inverse + nv * nv);
    free_slopes(s, a.slope, dq, dv, inverse, out[1], out[2]);
}

static void free_body_contracted(const void *self, const V *const *in, V *const *out, V *w)
{
    const free_body_t *s = self;
    const int nv = s->nv, nq = s->nq, nu = s->nu;
    const V *x = in[0], *lam = in[4] + nv;
    V *restrict xx = out[3], *restrict ux = out[4], *restrict uu = out[5];
    const free_inputs_t a = free_inputs(s, x, in[1], in[3], w);
    V *dq = w + FREE_INPUTS_WORKSPACE(nv, nq), *dv = dq + nv * nv, *inverse = dv + nv * nv, *qq = inverse + nv * nv, *qv = qq + nv * nv,
      *vv = qv + nv * nv, *qtau = vv + nv * nv;
    FD_SECOND_ORDER(s, a.q, x + nq, a.tau, lam, a.rotors, out[0], dq, dv, inverse, qq, qv, vv, qtau, qtau + nv * nv);
    free_slopes(s, a.slope, dq, dv, inverse, out[1], out[2]);
    for (int i = 0; i < nv; i++) {
        V weight = ZERO;
        for (int j = 0; j < nv; j++) weight += inverse[i * nv + j] * lam[j];
        for (int j = 0; j < nv; j++) {
            const V cross = qv[i * nv + j] + qtau[i * nv + j] * a.slope[j];
            const V springs = qtau[i * nv + j] * s->stiffness[j] + qtau[j * nv + i] * s->stiffness[i];
            xx[i * 2 * nv + j] = 0.5 * (qq[i * nv + j] + qq[j * nv + i]) - springs;
            xx[i * 2 * nv + nv + j] = cross;
            xx[(nv + j) * 2 * nv + i] = cross;
            xx[(nv + i) * 2 * nv + nv + j] = vv[i * nv + j];
        }
        xx[(nv + i) * 2 * nv + nv + i] += weight * a.second[i];
        for (int j = 0; j < nu; j++) {
            ux[j * 2 * nv + i] = s->share[j] * qtau[i * nv + s->driven[j]];
            ux[j * 2 * nv + nv + i] = ZERO;
        }
    }
    for (int i = 0; i < nu * nu; i++) uu[i] = ZERO;
}
