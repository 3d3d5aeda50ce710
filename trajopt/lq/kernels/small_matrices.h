/* Products of small matrices, and Cholesky factors.  Matrices are row-major.

   Sizes are arguments.  The functions that kernels call are not inlined; tiles are inlined into them for each shape, and factorizations for small
   numbers of controls, so that sums stay in registers. */
#pragma once
#include "numbers.h"

/* -- products of small matrices, in tiles whose sums stay in registers -------------------------------------------------------- */

#ifdef IN_LANES
#define PACK 1
typedef num pack_t;
#define TILED _Pragma("GCC unroll 4")
#define UNROLLED _Pragma("GCC unroll 8")
#elif defined __GNUC__
#ifdef __AVX512F__
#define PACK 8
#elif defined __AVX__
#define PACK 4
#else
#define PACK 2
#endif
#define PACK_OF(count) __attribute__((vector_size(8 * (count)), aligned(8), may_alias))
typedef double pack_t PACK_OF(PACK);
typedef double pack2_t PACK_OF(2);
#if PACK > 2
typedef double pack4_t PACK_OF(4);
#endif
#define TILED _Pragma("GCC unroll 4")
#define UNROLLED _Pragma("GCC unroll 8")
#else
#define PACK 1
typedef double pack_t;
#define TILED
#define UNROLLED
#endif
#define TILE_ROWS 4
/* Keep a value in a register: GCC would load it again for each use, and the tiles would wait for these loads.  With a problem in each lane, the
   factor is such a value too; otherwise it is one number for all lanes. */
#if defined __GNUC__ && defined __AVX__
#define STAYS(x) __asm__("" : "+v"(x))
#else
#define STAYS(x)
#endif
#ifdef IN_LANES
#define FACTOR_STAYS STAYS
#else
#define FACTOR_STAYS(x)
#endif
#if PACK == 8
#define TILE_PACKS 2
#else
#define TILE_PACKS 3
#endif

/* Matrix with entries X[i * by_row + k * by_column], plain or transposed. */
typedef struct {
    const num *at;
    int by_row, by_column;
} strided_t;

/* Tile of C = D + X Y (D: NULL for zero, or C itself) with r rows of w packs.  The last pack begins `last` columns after the first one and may
   overlap the pack before, because the tile is read completely before it is written.  Rows of C, D and Y have stride `stride`; X has b columns. */
#define DEFINE_TILE(name, type, wide)                                                                                                   \
    ALWAYS_INLINE void name(num *C, const num *D, strided_t X, const num *restrict Y, const int stride, const int b, const int r,       \
                            const int w, const int last)                                                                                \
    {                                                                                                                                   \
        type sum[TILE_ROWS][TILE_PACKS];                                                                                                \
        TILED for (int i = 0; i < r; i++)                                                                                               \
            TILED for (int j = 0; j < w; j++)                                                                                           \
                sum[i][j] = D ? *(const type *)(D + i * stride + (j < w - 1 ? j * wide : last)) : (type){0.0};                          \
        for (int k = 0; k < b; k++) {                                                                                                   \
            type y[TILE_PACKS];                                                                                                         \
            TILED for (int j = 0; j < w; j++) {                                                                                         \
                y[j] = *(const type *)(Y + k * stride + (j < w - 1 ? j * wide : last));                                                 \
                STAYS(y[j]);                                                                                                            \
            }                                                                                                                           \
            TILED for (int i = 0; i < r; i++) {                                                                                         \
                num f = X.at[i * X.by_row + k * X.by_column];                                                                           \
                FACTOR_STAYS(f);                                                                                                        \
                TILED for (int j = 0; j < w; j++) sum[i][j] += f * y[j];                                                                \
            }                                                                                                                           \
        }                                                                                                                               \
        TILED for (int i = 0; i < r; i++)                                                                                               \
            TILED for (int j = 0; j < w; j++) *(type *)(C + i * stride + (j < w - 1 ? j * wide : last)) = sum[i][j];                    \
    }

DEFINE_TILE(tile, pack_t, PACK)
/* Tiles with narrower packs, for few columns. */
#if PACK > 4
DEFINE_TILE(tile4, pack4_t, 4)
#endif
#if PACK > 2
DEFINE_TILE(tile2, pack2_t, 2)
#endif

/* Columns of D from j on; NULL if D is NULL. */
#define ALONG(D, j) ((D) ? (D) + (j) : NULL)

/* r rows of C = D + X Y in columns first .. c: whole tiles, and a last tile of the remaining columns, in as few packs as possible */
ALWAYS_INLINE void row_tiles(num *C, const num *D, strided_t X, const num *restrict Y, int first, const int b, const int c, const int r)
{
    int j = first;
    for (; j + TILE_PACKS * PACK <= c; j += TILE_PACKS * PACK)
        tile(C + j, ALONG(D, j), X, Y + j, c, b, r, TILE_PACKS, (TILE_PACKS - 1) * PACK);
    const int left = c - j;
#define LEFT(tile, w, wide) tile(C + j, ALONG(D, j), X, Y + j, c, b, r, w, left - (wide))
#if TILE_PACKS == 3
    if (left > 2 * PACK) LEFT(tile, 3, PACK);
    else
#endif
    if (left > PACK) LEFT(tile, 2, PACK);
    else if (left == PACK) LEFT(tile, 1, PACK);
#if PACK > 4
    else if (left > 4) LEFT(tile4, 2, 4);
    else if (left == 4) LEFT(tile4, 1, 4);
#endif
#if PACK > 2
    else if (left == 3) LEFT(tile2, 2, 2);
    else if (left == 2) LEFT(tile2, 1, 2);
#endif
#if PACK > 1
    else if (left == 1)
        for (int i = 0; i < r; i++) {
            num s = D ? D[i * c + j] : number(0.0);
            for (int k = 0; k < b; k++) {
                s += X.at[i * X.by_row + k * X.by_column] * Y[k * c + j];
                STAYS(s); /* one after the other, rounded as in packs */
            }
            C[i * c + j] = s;
        }
#endif
#undef LEFT
}

/* C (a x c) = D + X Y for X (a x b), Y (b x c); upper: compute only entries on and above the diagonal of C, and some below */
NOT_INLINE void tiled_product(num *C, const num *D, strided_t X, const num *restrict Y, const int a, const int b, const int c,
                                 const int upper)
{
    int i = 0;
    for (; i + TILE_ROWS <= a; i += TILE_ROWS, X.at += TILE_ROWS * X.by_row)
        row_tiles(C + i * c, ALONG(D, i * c), X, Y, upper ? i : 0, b, c, TILE_ROWS);
    /* one tile for the remaining rows: a single row has too few parallel sums */
    if (a - i == 3) row_tiles(C + i * c, ALONG(D, i * c), X, Y, upper ? i : 0, b, c, 3);
    if (a - i == 2) row_tiles(C + i * c, ALONG(D, i * c), X, Y, upper ? i : 0, b, c, 2);
    if (a - i == 1) row_tiles(C + i * c, ALONG(D, i * c), X, Y, upper ? i : 0, b, c, 1);
}

/* C (a x c) = D + X Y for X (a x b), Y (b x c), D: NULL for zero; PRODUCT: C = X Y, or C += X Y for plus = 1 */
#define SUM_PRODUCT(C, D, X, Y, a, b, c) tiled_product(C, D, (strided_t){X, b, 1}, Y, a, b, c, 0)
#define PRODUCT(C, X, Y, a, b, c, plus) SUM_PRODUCT(C, (plus) ? (C) : NULL, X, Y, a, b, c)
/* C (a x c) = D + X' Y for X (b x a), Y (b x c) */
#define SUM_TRANSPOSED_PRODUCT(C, D, X, Y, a, b, c) tiled_product(C, D, (strided_t){X, 1, a}, Y, a, b, c, 0)
#define TRANSPOSED_PRODUCT(C, X, Y, a, b, c, plus) SUM_TRANSPOSED_PRODUCT(C, (plus) ? (C) : NULL, X, Y, a, b, c)
/* Upper half of C (a x a) = D + X' Y for X, Y (b x a) */
#define UPPER_SUM_PRODUCT(C, D, X, Y, a, b) tiled_product(C, D, (strided_t){X, 1, a}, Y, a, b, a, 1)
#define ADD_UPPER_PRODUCT(C, X, Y, a, b) UPPER_SUM_PRODUCT(C, C, X, Y, a, b)

#ifndef IN_LANES
/* x'y for x, y (n) */
ALWAYS_INLINE double dot(const double *x, const double *y, const int n)
{
    double rest = 0.0;
    int i = 0;
#if PACK > 1 /* narrowing packs, since most vectors are short */
    pack2_t two = {0.0};
#if PACK > 2
    pack4_t four = {0.0};
#if PACK > 4
    pack_t eight = {0.0};
    for (; i + 8 <= n; i += 8) eight += *(const pack_t *)(x + i) * *(const pack_t *)(y + i);
    four = ((const pack4_t *)&eight)[0] + ((const pack4_t *)&eight)[1];
#endif
    for (; i + 4 <= n; i += 4) four += *(const pack4_t *)(x + i) * *(const pack4_t *)(y + i);
    two = ((const pack2_t *)&four)[0] + ((const pack2_t *)&four)[1];
#endif
    for (; i + 2 <= n; i += 2) two += *(const pack2_t *)(x + i) * *(const pack2_t *)(y + i);
    rest = two[0] + two[1];
#endif
    for (; i < n; i++) rest += x[i] * y[i];
    return rest;
}
#endif

/* A statement for a number m of controls, which is known when this is compiled where they are few. */
#define FOR_SIZE(m, DO)          \
    switch (m) {                 \
        case 1: DO(1); break;    \
        case 2: DO(2); break;    \
        case 3: DO(3); break;    \
        case 4: DO(4); break;    \
        case 5: DO(5); break;    \
        case 6: DO(6); break;    \
        case 7: DO(7); break;    \
        case 8: DO(8); break;    \
        case 12: DO(12); break;  \
        default: DO(m);          \
    }

ALWAYS_INLINE truth cholesky_of(num *restrict G, const int m)
{
    truth definite = ALL;
    UNROLLED for (int j = 0; j < m; j++) {
        num s = G[j * m + j];
        UNROLLED for (int k = 0; k < j; k++) {
            s -= G[j * m + k] * G[j * m + k];
            STAYS(s);
        }
        definite &= (s > 0.0) & (s <= 1e300);
        if (!ANY(definite)) break;
        s = root(s);
        G[j * m + j] = s;
        const num inverse = 1.0 / s;
        UNROLLED for (int i = j + 1; i < m; i++) {
            num t = G[i * m + j];
            UNROLLED for (int k = 0; k < j; k++) {
                t -= G[i * m + k] * G[j * m + k];
                STAYS(t);
            }
            G[i * m + j] = t * inverse;
        }
    }
    return definite;
}

/* In-place Cholesky factor of G (m x m); false where it is not positive definite. */
NOT_INLINE truth cholesky(num *restrict G, const int m)
{
    truth definite;
#define FACTOR(m) definite = cholesky_of(G, m)
    FOR_SIZE(m, FACTOR)
#undef FACTOR
    return definite;
}

/* Columns of X (m x c) in one `type` <- -G^-1 X by the Cholesky factor of G; inverse: inverses of the factor's diagonal. */
#define DEFINE_MINUS_SOLVE(name, type)                                                                                                  \
    ALWAYS_INLINE void name(const num *restrict G, const num *restrict inverse, num *restrict X, const int c, const int m)              \
    {                                                                                                                                   \
        type x[m];                                                                                                                      \
        UNROLLED for (int i = 0; i < m; i++)                                                                                            \
        {                                                                                                                               \
            x[i] = *(const type *)(X + i * c);                                                                                          \
            UNROLLED for (int k = 0; k < i; k++) x[i] -= G[i * m + k] * x[k];                                                           \
            x[i] *= inverse[i];                                                                                                         \
        }                                                                                                                               \
        UNROLLED for (int i = m - 1; i >= 0; i--)                                                                                       \
        {                                                                                                                               \
            UNROLLED for (int k = m - 1; k > i; k--) x[i] -= G[k * m + i] * x[k];                                                       \
            x[i] *= inverse[i];                                                                                                         \
            *(type *)(X + i * c) = -x[i];                                                                                               \
        }                                                                                                                               \
    }

DEFINE_MINUS_SOLVE(minus_solve_pack, pack_t)
DEFINE_MINUS_SOLVE(minus_solve_column, num)

ALWAYS_INLINE void minus_solve_of(const num *restrict G, num *restrict X, const int c, const int m)
{
    num inverse[m];
    int j = 0;
    for (int i = 0; i < m; i++) inverse[i] = 1.0 / G[i * m + i];
    for (; j + PACK <= c; j += PACK) minus_solve_pack(G, inverse, X + j, c, m);
    for (; j < c; j++) minus_solve_column(G, inverse, X + j, c, m);
}

/* X (m x c) <- -G^-1 X by the Cholesky factor of G. */
NOT_INLINE void minus_solve(const num *restrict G, num *restrict X, const int c, const int m)
{
#define SOLVE(m) minus_solve_of(G, X, c, m)
    FOR_SIZE(m, SOLVE)
#undef SOLVE
}
