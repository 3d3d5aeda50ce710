/* What functions of dynamics get beside their arguments: the model's tables, a workspace, and where the forces of constraints and
   their derivatives go (rows, then rows x columns in (q, v, u)), NULL where nobody asks.  A function of the value leaves the latter out.
   phi (rows): multipliers of the forces, whose second derivatives join those of lam' f; NULL for none. */

typedef struct {
    const int *const *ti;
    const double *const *td;
    V *w, *forces;
    const V *phi;
} ctx_t;

/* What dynamics_contracted gives: f and its derivatives, and the second derivatives of lam' f. */
typedef struct {
    V *f, *fx, *fu, *xx, *ux, *uu;
} contraction_t;
