/* Tapes: straight-line functions as data, evaluated by an interpreter that serves all of them. */
#pragma once
#include "loops.h"

/* Instructions, with their operands in the code: d, a, b, c, e are registers, k an index of a constant. */
enum tape_op {
    /* end of a function; call of the function at an offset of the code; i n a... m (j o d k)...: kernel i with n inputs a, its k
       results from j to components of output o from d, or for o = -1 to registers from d */
    TAPE_RETURN, TAPE_CALL, TAPE_KERNEL,
    /* d i j n: n components of input i from j to registers from d; o j d: component j of output o; o j n k: n components from j; n (d a)...: copies; d k */
    TAPE_LOAD, TAPE_STORE, TAPE_FILL, TAPE_MOVE, TAPE_CONST,
    /* d n runs: sum of n runs of terms. A run is 8 count + kind, followed by the operands of its terms: see tape_term */
    TAPE_SUM,
    /* d a b c e: a b + c e, a b - c e; d a b c: a b + c, a b - c, c - a b; d a b k: a k + b */
    TAPE_PRODUCTS_ADD, TAPE_PRODUCTS_SUB, TAPE_PRODUCT_ADD, TAPE_PRODUCT_SUB, TAPE_SUB_PRODUCT, TAPE_SCALED_ADD,
    /* d a b */
    TAPE_ADD, TAPE_SUB, TAPE_MUL, TAPE_DIV,
    /* d a k: a + k, k - a, a k, a / k, k / a */
    TAPE_ADD_K, TAPE_K_SUB, TAPE_MUL_K, TAPE_DIV_K, TAPE_K_DIV,
    /* d a */
    TAPE_NEG, TAPE_SQ, TAPE_INV, TAPE_SQRT, TAPE_SIN, TAPE_COS, TAPE_TAN, TAPE_EXP, TAPE_LOG, TAPE_SINH, TAPE_COSH, TAPE_TANH,
    TAPE_ASIN, TAPE_ACOS, TAPE_ATAN, TAPE_EXPM1, TAPE_LOG1P, TAPE_FABS, TAPE_FLOOR, TAPE_SIGN, TAPE_NOT,
    /* d a b */
    TAPE_ATAN2, TAPE_POW, TAPE_CONSTPOW, TAPE_FMIN, TAPE_FMAX, TAPE_LT, TAPE_LE, TAPE_EQ, TAPE_NE, TAPE_AND, TAPE_OR,
    TAPE_IF_ELSE_ZERO,
    /* d a b c e: c if a < b, else e; d a b c: b if a is not zero, else c */
    TAPE_SELECT_LT, TAPE_SELECT
};

/* Terms of a sum, in the order of evaluation: + a b, - a b, + a, - a, + k a, + k. */
enum tape_term { TAPE_PLUS_PRODUCT, TAPE_MINUS_PRODUCT, TAPE_PLUS, TAPE_MINUS, TAPE_PLUS_SCALED, TAPE_PLUS_CONSTANT };

/* Kernel that tapes call: run of loops.h. inputs, outputs: their numbers. */
typedef struct {
    void (*run)(const tables_t *tables, const void *in, void *out, void *workspace);
    tables_t tables;
    long inputs, outputs;
} tape_kernel_t;

/* A tape. length: of the code. registers: their number. kernel_workspace: number of the last registers, which hold the inputs, outputs
   and workspace of a kernel. */
typedef struct {
    const int *code;
    const double *constants;
    const tape_kernel_t *kernels;
    long length, registers, kernel_workspace;
} tape_t;
