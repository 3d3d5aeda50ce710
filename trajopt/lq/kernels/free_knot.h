/* A step back of the recursion of equality_riccati.h, where there are no equations: of one problem or, with ABREAST, of one in each lane.
   Before this text stands equality_types.h. */

/* The quadratic function of (dx, du) at a knot with the value function P (n, n) of the next: uu (m, m), ux (m, n), and the upper half of xx. */
ALWAYS_INLINE void quadratic_at(const num *A, const num *B, const num *Q, const num *S, const num *R, num shift, const num *P,
                                num *restrict uu, num *restrict ux, num *restrict xx)
{
    num PA[N_ * N_], PB[N_ * M_];
    PRODUCT(PA, P, A, N_, N_, N_, 0);
    PRODUCT(PB, P, B, N_, N_, M_, 0);
    SUM_TRANSPOSED_PRODUCT(uu, R, B, PB, M_, N_, M_);
    SUM_TRANSPOSED_PRODUCT(ux, S, B, PA, M_, N_, N_);
    UPPER_SUM_PRODUCT(xx, Q, A, PA, N_, N_);
    for (int a = 0; a < M_; a++) uu[a * (M_ + 1)] += shift;
    for (int a = 0; a < N_; a++) xx[a * (N_ + 1)] += shift;
}

/* The Cholesky factor G of uu and the gains K; xx becomes the upper half of the value function.  False where uu is not positive definite. */
ALWAYS_INLINE truth free_gains(const num *uu, const num *ux, num *restrict G, num *restrict K, num *restrict xx)
{
    memcpy(G, uu, sizeof(num) * M_ * M_);
    const truth definite = cholesky(G, M_);
    if (!ANY(definite)) return definite;
    memcpy(K, ux, sizeof(num) * M_ * N_);
    minus_solve(G, K, N_, M_);
    ADD_UPPER_PRODUCT(xx, ux, K, N_, M_);
    return definite;
}

ALWAYS_INLINE void mirror(num *P)
{
    for (int a = 0; a < N_; a++)
        for (int b = 0; b < a; b++) P[a * N_ + b] = P[b * N_ + a];
}
