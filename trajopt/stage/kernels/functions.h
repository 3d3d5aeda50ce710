/* Functions of a phase on vectors over lanes: its dynamics, running and terminal cost, path and final constraints.  Second derivatives are
   NULL if they are not needed, those of the dynamics also if all are zero.

   rows: computed rows of xdot, all or those below qdot = v.  force_rows: contact forces y of the time step that running terms read; force_columns:
   those of their derivatives, in the state and the first controls.  curved_forces: 1 if second derivatives of the step contain those of
   phi' y. */
#pragma once
#include "../../../dynamics_backends/compiled/templates/lanes/context.h"
#include "../../../dynamics_backends/compiled/templates/lanes/function.h"

typedef struct {
    function_t dynamics_value;     /* x, u, t, p -> f, forces; forces: if rows of the cost read them */
    function_t dynamics_partials;  /* x, u, t, p -> f, fx, fu, forces; forces with their derivatives in (q, v, u) behind them */
    function_t dynamics_contracted; /* x, u, t, p, lam, phi -> f, fx, fu, xx, ux, uu; second derivatives of lam' f + phi' forces; */
    function_t running_value;      /* x, u, t, dt, theta, forces -> l */
    function_t running_expand;     /* x, u, t, dt, theta, forces -> l, lx, lu, lxx, lux, luu at fixed forces, and gradient phi and Hessian in the forces */
    function_t terminal_value;     /* x, t, theta -> l */
    function_t terminal_expand;    /* x, t, theta -> l, lx, lxx */
    function_t path_value;         /* x, u, t, pg -> g */
    function_t path_first;         /* x, u, t, pg -> g, gx, gu */
    function_t path_second;        /* x, u, t, pg, y -> hxx, hux, huu: second derivatives of y' g */
    function_t final_value;        /* x, t, pg -> g */
    function_t final_first;        /* x, t, pg -> g, gx */
    function_t final_second;       /* x, t, pg, y -> hxx */
    int rows, force_rows, force_columns, curved_forces;
} functions_t;
