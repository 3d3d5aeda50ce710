/* Number type of the LQ kernels: doubles; or, with prelude.h included and IN_LANES defined, SIMD vectors with one problem in each lane.
   A truth is the result of comparing numbers, with a value for each lane.  ANY: true in some lane; with IN_LANES also HOLDS: true in lane l,
   OF: number of lane l, CHOSEN: select one of two numbers by lane. */
#pragma once
#include <math.h>
#include <string.h>
#include "lq_types.h"
#ifdef IN_LANES
#include "../../../dynamics_backends/compiled/templates/lanes/prelude.h"
#endif

/* Numbers of states and of controls, in functions with the sizes dims of a problem. */
#ifndef N_ /* else they are known when this is compiled */
#define N_ dims.n
#define M_ dims.m
#endif
#define SIZES(of) const lq_size dims = (of); (void)dims

#ifndef ALWAYS_INLINE /* the prelude defines them */
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define EXPORT __attribute__((visibility("default")))
#endif
#ifdef SIZED
#define NOT_INLINE ALWAYS_INLINE
#elif defined __GNUC__
#define NOT_INLINE static __attribute__((noinline))
#else
#define NOT_INLINE static
#endif

#ifdef IN_LANES
typedef V num;
typedef VI truth;
#define ALL ((truth){} == (truth){})
#define HOLDS(m, l) ((m)[l] != 0)
#define OF(x, l) ((x)[l])
#define ANY somewhere
ALWAYS_INLINE num number(double x) { return splat(x); }
ALWAYS_INLINE num size_of(num x) { return either(x < 0.0, -x, x); }
ALWAYS_INLINE num root(num x) { return v_sqrt(x); }
#else
typedef double num;
typedef int truth;
#define ALL 1
#define ANY(m) (m)
#define number(x) (x)
#define root sqrt
#endif

/* The next `count` numbers of a workspace. */
ALWAYS_INLINE num *taken(num **workspace, long count)
{
    num *at = *workspace;
    *workspace += count;
    return at;
}
