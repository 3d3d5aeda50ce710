/* Interpreter of tapes. An instruction works on several vectors (a block), so that its decoding takes little of the time. */
#pragma once
#include "tape.h"

/* Largest block in vectors; sums of products of a block stay in the processor's registers. */
#define BLOCK 8
/* Registers of a block take at most this many doubles (1 MB), so that they stay in the second-level cache. */
#define CACHED (1L << 17)
/* Largest depth of calls. */
#define DEPTH 16

static inline V v_select(V c, V a, V b) { return either(c != ZERO, a, b); }

#define AT(i) (workspace + (long)(i)*B)
#define EACH UNROLL for (int j = 0; j < B; j++)
/* Instructions with one to four operands and a constant k. */
#define ONE(NAME, value) \
    case TAPE_##NAME: { \
        const V *a_ = AT(p[2]); \
        V *d = AT(p[1]); \
        EACH { const V a = a_[j]; d[j] = value; } \
        p += 3; \
        break; \
    }
#define TWO(NAME, value) \
    case TAPE_##NAME: { \
        const V *a_ = AT(p[2]), *b_ = AT(p[3]); \
        V *d = AT(p[1]); \
        EACH { const V a = a_[j], b = b_[j]; d[j] = value; } \
        p += 4; \
        break; \
    }
#define THREE(NAME, value) \
    case TAPE_##NAME: { \
        const V *a_ = AT(p[2]), *b_ = AT(p[3]), *c_ = AT(p[4]); \
        V *d = AT(p[1]); \
        EACH { const V a = a_[j], b = b_[j], c = c_[j]; d[j] = value; } \
        p += 5; \
        break; \
    }
#define FOUR(NAME, value) \
    case TAPE_##NAME: { \
        const V *a_ = AT(p[2]), *b_ = AT(p[3]), *c_ = AT(p[4]), *e_ = AT(p[5]); \
        V *d = AT(p[1]); \
        EACH { const V a = a_[j], b = b_[j], c = c_[j], e = e_[j]; d[j] = value; } \
        p += 6; \
        break; \
    }
#define ONE_K(NAME, value) \
    case TAPE_##NAME: { \
        const V *a_ = AT(p[2]), k = splat(constants[p[3]]); \
        V *d = AT(p[1]); \
        EACH { const V a = a_[j]; d[j] = value; } \
        p += 4; \
        break; \
    }
#define TWO_K(NAME, value) \
    case TAPE_##NAME: { \
        const V *a_ = AT(p[2]), *b_ = AT(p[3]), k = splat(constants[p[4]]); \
        V *d = AT(p[1]); \
        EACH { const V a = a_[j], b = b_[j]; d[j] = value; } \
        p += 5; \
        break; \
    }

#define PRODUCT(j) a[j] * b[j]
#define PLAIN(j) a[j]
#define SCALED(j) a[j] * k
#define CONSTANT(j) k
/* Sums have a variable for each vector of the block: the compiler would keep an array in memory. */
#define ACCUMULATE(op, term)        \
    s0 op term(0);                  \
    if (B > 1) s1 op term(1);       \
    if (B > 2) s2 op term(2);       \
    if (B > 3) s3 op term(3);       \
    if (B > 4) s4 op term(4);       \
    if (B > 5) s5 op term(5);       \
    if (B > 6) s6 op term(6);       \
    if (B > 7) s7 op term(7);
#define TO_EACH(d, op)              \
    d[0] op s0;                     \
    if (B > 1) d[1] op s1;          \
    if (B > 2) d[2] op s2;          \
    if (B > 3) d[3] op s3;          \
    if (B > 4) d[4] op s4;          \
    if (B > 5) d[5] op s5;          \
    if (B > 6) d[6] op s6;          \
    if (B > 7) d[7] op s7;
#define TERMS(KIND, operands, addresses, op, term)                              \
    case TAPE_##KIND:                                                           \
        for (; n; n--, p += operands) { addresses; ACCUMULATE(op, term) }       \
        break;

/* Evaluate a tape on B vectors of each component, the first of which are `from` vectors behind the starts of the arguments. */
ALWAYS_INLINE void tape_block(const tape_t *tape, const V *const *in, V *const *out, V *workspace, places_t places, long from, const int B)
{
    const double *constants = tape->constants;
    const int *back[DEPTH], *p = tape->code;
    int depth = 0;
    for (;;) switch ((enum tape_op)*p) {
        case TAPE_RETURN: {
            if (!depth) return;
            p = back[--depth];
            break;
        }
        case TAPE_CALL: {
            back[depth++] = p + 2;
            p = tape->code + p[1];
            break;
        }
        case TAPE_KERNEL: {
            const tape_kernel_t *kernel = tape->kernels + p[1];
            const int n = p[2], *read = p + 3, m = read[n], *written = read + n + 1;
            V *given = AT(tape->registers - tape->kernel_workspace), *results = given + kernel->inputs;
            for (int j = 0; j < B; j++) {
                for (int i = 0; i < n; i++) given[i] = AT(read[i])[j];
                kernel->run(&kernel->tables, given, results, results + kernel->outputs);
                for (const int *w = written; w < written + 4 * m; w += 4) {
                    V *d = w[1] < 0 ? AT(w[2]) + j : out[w[1]] + w[2] * places.component + from + j * places.block;
                    const V *a = results + w[0], *end = a + w[3];
                    for (const long apart = w[1] < 0 ? B : places.component; a < end; a++, d += apart) *d = *a;
                }
            }
            p = written + 4 * m;
            break;
        }
        case TAPE_LOAD: {
            V *d = AT(p[1]);
            const V *a = in[p[2]] + p[3] * places.component + from;
            for (int i = 0; i < p[4]; i++, d += B, a += places.component) EACH d[j] = a[j * places.block];
            p += 5;
            break;
        }
        case TAPE_STORE: {
            V *d = out[p[1]] + p[2] * places.component + from;
            const V *a = AT(p[3]);
            EACH d[j * places.block] = a[j];
            p += 4;
            break;
        }
        case TAPE_FILL: {
            V *d = out[p[1]] + p[2] * places.component + from, k = splat(constants[p[4]]);
            for (int i = 0; i < p[3]; i++, d += places.component) EACH d[j * places.block] = k;
            p += 5;
            break;
        }
        case TAPE_MOVE: {
            const int n = p[1];
            p += 2;
            for (int i = 0; i < n; i++, p += 2) {
                V *d = AT(p[0]);
                const V *a = AT(p[1]);
                EACH d[j] = a[j];
            }
            break;
        }
        case TAPE_CONST: {
            V *d = AT(p[1]), k = splat(constants[p[2]]);
            EACH d[j] = k;
            p += 3;
            break;
        }
        case TAPE_SUM: {
            V s0 = splat(-0.0), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0; /* -0 + x is x, also for a zero x */
            V *d = AT(p[1]);
            int runs = p[2];
            for (p += 3; runs; runs--) {
                int n = *p >> 3;
                switch ((enum tape_term)(*p++ & 7)) {
                    TERMS(PLUS_PRODUCT, 2, const V *a = AT(p[0]); const V *b = AT(p[1]), +=, PRODUCT)
                    TERMS(MINUS_PRODUCT, 2, const V *a = AT(p[0]); const V *b = AT(p[1]), -=, PRODUCT)
                    TERMS(PLUS, 1, const V *a = AT(p[0]), +=, PLAIN)
                    TERMS(MINUS, 1, const V *a = AT(p[0]), -=, PLAIN)
                    TERMS(PLUS_SCALED, 2, const V *a = AT(p[0]); const V k = splat(constants[p[1]]), +=, SCALED)
                    TERMS(PLUS_CONSTANT, 1, const V k = splat(constants[p[0]]), +=, CONSTANT)
                    default: __builtin_unreachable();
                }
            }
            TO_EACH(d, =)
            break;
        }
        FOUR(PRODUCTS_ADD, a * b + c * e)
        FOUR(PRODUCTS_SUB, a * b - c * e)
        THREE(PRODUCT_ADD, a * b + c)
        THREE(PRODUCT_SUB, a * b - c)
        THREE(SUB_PRODUCT, c - a * b)
        TWO_K(SCALED_ADD, a * k + b)
        TWO(ADD, a + b)
        TWO(SUB, a - b)
        TWO(MUL, a * b)
        TWO(DIV, a / b)
        ONE_K(ADD_K, a + k)
        ONE_K(K_SUB, k - a)
        ONE_K(MUL_K, a * k)
        ONE_K(DIV_K, a / k)
        ONE_K(K_DIV, k / a)
        ONE(NEG, -a)
        ONE(SQ, a * a)
        ONE(INV, 1.0 / a)
        ONE(SQRT, v_sqrt(a))
        ONE(SIN, v_sin(a))
        ONE(COS, v_cos(a))
        ONE(TAN, v_tan(a))
        ONE(EXP, v_exp(a))
        ONE(LOG, v_log(a))
        ONE(SINH, v_sinh(a))
        ONE(COSH, v_cosh(a))
        ONE(TANH, v_tanh(a))
        ONE(ASIN, v_asin(a))
        ONE(ACOS, v_acos(a))
        ONE(ATAN, v_atan(a))
        ONE(EXPM1, v_expm1(a))
        ONE(LOG1P, v_log1p(a))
        ONE(FABS, v_fabs(a))
        ONE(FLOOR, v_floor(a))
        ONE(SIGN, v_sign(a))
        ONE(NOT, v_not(a))
        TWO(ATAN2, v_atan2(a, b))
        TWO(POW, v_pow(a, b))
        TWO(CONSTPOW, v_constpow(a, b))
        TWO(FMIN, v_fmin(a, b))
        TWO(FMAX, v_fmax(a, b))
        TWO(LT, v_lt(a, b))
        TWO(LE, v_le(a, b))
        TWO(EQ, v_eq(a, b))
        TWO(NE, v_ne(a, b))
        TWO(AND, v_and(a, b))
        TWO(OR, v_or(a, b))
        TWO(IF_ELSE_ZERO, v_if_else_zero(a, b))
        THREE(SELECT, v_select(a, b, c))
        FOUR(SELECT_LT, v_select_lt(a, b, c, e))
        default: __builtin_unreachable();
    }
}

#define BLOCK_OF(B)                                                                                                         \
    NOINLINE void tape_block_##B(const tape_t *tape, const V *const *in, V *const *out, V *workspace, places_t places, long from) \
    {                                                                                                                       \
        tape_block(tape, in, out, workspace, places, from, B);                                                                   \
    }
BLOCK_OF(1)
BLOCK_OF(2)
BLOCK_OF(4)
BLOCK_OF(8)

long tape_workspace(const tape_t *tape, int blocks) { return tape->registers * (blocks < BLOCK ? blocks : BLOCK); }

/* Largest block of at most `blocks` vectors, a power of two, whose registers stay in the cache. */
static int block_of(const tape_t *tape, long blocks)
{
    int B = BLOCK;
    while (B > 1 && (B > blocks || (B > 2 && (tape->registers - tape->kernel_workspace) * B * LANES > CACHED))) B /= 2;
    return B;
}

void tape_run(const tape_t *tape, const V *const *in, V *const *out, V *workspace, int blocks, places_t places)
{
    for (int at = 0, B; at < blocks; at += B) {
        B = block_of(tape, blocks - at);
        const long from = at * places.block;
        (B == 8 ? tape_block_8 : B == 4 ? tape_block_4 : B == 2 ? tape_block_2 : tape_block_1)(tape, in, out, workspace, places, from);
    }
}

/* A tape as function_t, with the tape as self. */
EXPORT void tape_function(const void *self, const V *const *in, V *const *out, V *w) { tape_run(self, in, out, w, 1, (places_t){1, 0}); }

/* run_blocks of function.h.  3 and 5 to 7 blocks are rounded up to 4 and 8, which is faster: their memory must exist. */
EXPORT void tape_blocks(const void *self, const V *const *in, V *const *out, V *w, int blocks, long apart)
{
    tape_run(self, in, out, w, blocks == 3 ? 4 : blocks > 4 && blocks < 8 ? 8 : blocks, (places_t){1, apart});
}
