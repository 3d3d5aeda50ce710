/* Functions of a Lie group on vectors over lanes: y = x (+) d and d = y (-) x; the derivatives of x (+) d in x (transport) and in
   d (dexp), dexp^-1, and that of dexp^-1(d) k in d, as matrices M by rows; and second derivatives contracted with l
   (dynamics_backends/compiled/sources/manifold_source.py). */
#pragma once
#include "vectors.h"

typedef struct {
    const char *name;
    void (*integrate)(const V *x, const V *d, V *y);
    void (*difference)(const V *x, const V *y, V *d);
    void (*transport)(const V *d, V *M);
    void (*dexp)(const V *d, V *M);
    void (*dexp_inv)(const V *d, V *M);
    void (*d_dexp_inv)(const V *d, const V *k, V *M);
    void (*integrate_hessian)(const V *d, const V *l, V *ye, V *ee);
    void (*dexp_inv_hessian)(const V *d, const V *k, const V *l, V *dk, V *dd);
    void (*difference_hessian)(const V *d, const V *l, V *M);
} group_t;

/* Factor of a manifold: its positions in a state (q) and in a tangent vector (v), its sizes nq and nv there, and the position
   `block` of its matrix among the matrices of all groups.  group: NULL for a vector space and SO(2). */
typedef struct {
    const group_t *group;
    int q, v, nq, nv, block;
} factor_t;
