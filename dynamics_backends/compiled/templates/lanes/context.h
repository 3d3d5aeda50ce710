/* Workspace of dynamics functions, and output arrays for the constraint forces and their derivatives (rows, and rows x columns in
   (q, v, u)), or NULL. Functions of the value ignore the derivatives. phi (rows): multipliers of the forces, whose second derivatives
   are added to those of lam' f, or NULL. */

typedef struct {
    V *w, *forces;
    const V *phi;
} ctx_t;

/* Outputs of dynamics_contracted: f and its derivatives, and the second derivatives of lam' f. */
typedef struct {
    V *f, *fx, *fu, *xx, *ux, *uu;
} contraction_t;
