/* Functions of a phase on vectors over lanes: its dynamics (dynamics_source.py), running and terminal cost (term_source.py), path and final
   constraints (constraint_source.py).  Second derivatives are NULL if they are not compiled.  Include a prelude and function.h before this
   file.

   rows: computed rows of xdot, all or those below qdot = v.  forces: entries of the contact forces and of their derivatives that running
   terms read.  bent: number of forces whose multipliers phi running_expand returns in place of (phi' forces)_xx.  If derivatives of some rows of xdot are stored sparsely (dynamics_source.py), full_row has the other rows, few_row the sparse ones, and
   few_first and few_column their entries by rows. */
typedef struct {
    function_t dynamics_value;     /* x, u, t, p -> f, forces; forces: NULL if they are not needed */
    function_t dynamics_partials;  /* x, u, t, p -> f, fx, fu, forces; forces with their derivatives in (q, v, u) behind them */
    function_t dynamics_contracted; /* x, u, t, p, lam, phi -> f, fx, fu, xx, ux, uu; second derivatives of lam' f + phi' forces; phi: or NULL */
    function_t running_value;      /* x, u, t, dt, theta, forces -> l */
    function_t running_expand;     /* x, u, t, dt, theta, forces -> l, lx, lu, lxx, lux, luu, phi */
    function_t terminal_value;     /* x, t, theta -> l */
    function_t terminal_expand;    /* x, t, theta -> l, lx, lxx */
    function_t path_value;         /* x, u, t, pg -> g */
    function_t path_first;         /* x, u, t, pg -> g, gx, gu */
    function_t path_second;        /* x, u, t, pg, y -> hxx, hux, huu: second derivatives of y' g */
    function_t final_value;        /* x, t, pg -> g */
    function_t final_first;        /* x, t, pg -> g, gx */
    function_t final_second;       /* x, t, pg, y -> hxx */
    const int *full_row, *few_row, *few_first, *few_column;
    int few_rows, few_entries, rows, forces, bent;
} functions_t;
