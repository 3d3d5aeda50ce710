/* Time steps of free robots and robots in soft contact with a plane, by loops over the tables of a robot. */
#pragma once

/* A robot, the law of its contacts and a Runge-Kutta scheme. ti, td: the tables of loops.h. For each contact point its body, 1
   if that body moves with a floating base (rides), and its position `at` (3) on the body. driven: degrees of freedom of the
   controls. turn (3 x 3): rotation of the base's placement. ground: height, normal (3) and numbers of the law. By degree of
   freedom: viscous, damped (implicit), coulomb, stiffness, rest, rotor. A, B, AI: coefficients of the scheme, AI of implicit
   damping. slip: velocity of friction [rad/s]. */
typedef struct {
    const int *const *ti;
    const double *const *td;
    const int *body, *rides, *driven;
    const double *at, *turn, *ground, *viscous, *damped, *coulomb, *stiffness, *rest, *rotor, *A, *B, *AI;
    long nb, nv, nq, points, controls, lagged, damps, stages, semi_implicit, substeps, floating;
    double slip;
} robot_t;

/* Steps from x (N x nx) with controls u and step lengths dt to `next`; first: with derivatives slopes (N x ndx x (ndx + nu)) in
   the tangent spaces. */
typedef struct {
    const char *law;
    long (*step_room)(const robot_t *robot);
    void (*step)(const robot_t *robot, const double *x, const double *u, const double *dt, double *next, long first, long last,
                 void *room);
    long (*first_room)(const robot_t *robot);
    void (*first)(const robot_t *robot, const double *x, const double *u, const double *dt, double *next, double *slope, long first,
                  long last, void *room);
} steps_t;

/* Steps of robots with this contact law, or NULL. */
const steps_t *steps_named(const char *law);
