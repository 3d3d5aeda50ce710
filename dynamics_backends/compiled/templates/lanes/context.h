/* Workspace of the dynamics, and multipliers phi of the constraint forces, whose second derivatives are added to those of lam' f, or NULL. */
#pragma once
#include "vectors.h"

typedef struct {
    V *w;
    const V *phi;
} ctx_t;

/* Outputs of dynamics_contracted: f and its derivatives, and the second derivatives of lam' f. */
typedef struct {
    V *f, *fx, *fu, *xx, *ux, *uu;
} contraction_t;
