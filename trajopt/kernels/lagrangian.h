/* The knots of a sparse nonlinear program: values, first derivatives, and the Hessian of sigma l + lam' x_next + y'g.
   The twin of trajopt/knots.py on vector spaces, under Runge-Kutta methods.

   Before this text stand prelude.h; NX, NU, NF (rows of xdot that are computed: NX, or those below qdot = v), NT, NTT (weights and
   parameters of running and terminal terms), NG, NGT (constraints at running knots and at the final one), NPG, NPGT (their
   parameters), KNOTS_ROOM; STAGES and the tableau A_, B_, C_; and the functions

       dynamics_value(ctx, x, u, t, p, f)               dynamics_partials(ctx, x, u, t, p, f, fx, fu)
       dynamics_contracted(ctx, x, u, t, p, k, f, fx, fu, xx, ux, uu)
       running_value, running_expand, terminal_value, terminal_expand                          (term_source.py)
       path_value, path_first, path_second, final_value, final_first, final_second             (constraint_source.py)

   A step of sensitivities carries S = d x / d (x0, u) through all stages of all substeps,

       S_i = S + h sum_j a_ij K_j          K_i = f_x S_i + [0 f_u]          S <- S + h sum_i b_i K_i

   and keeps x_i and S_i. The Hessian is one adjoint sweep over them, from the last stage to the first:

       k_i = h b_i mu + h sum_(j > i) a_ji f_x,j' k_j          H += [S_i; E]' (k_i' f)_ww [S_i; E]          mu <- mu + sum_i f_x,i' k_i   */

#define NW (NX + NU)
#define ABOVE (NX - NF)            /* rows of xdot that are v */
#define KEPT (NX + NX * NW)        /* vectors kept of a stage */

static void field(ctx_t c, const V *x, const V *u, V t, V *restrict f)
{
    for (int i = 0; i < ABOVE; i++) f[i] = x[NF + i];
    dynamics_value(c, x, u, t, NULL, f + ABOVE);
}

/* The state of a stage: x + h sum_j a_ij k_j */
static void stage_state(int s, const V *x, V h, V k[][NX], V *restrict at)
{
    for (int i = 0; i < NX; i++) {
        V sum = ZERO;
        for (int j = 0; j < s; j++) sum += A_[s][j] * k[j][i];
        at[i] = x[i] + h * sum;
    }
}

static void step(ctx_t c, int substeps, const V *x0, const V *u, V t, V dt, V *restrict x)
{
    const V h = dt / (double)substeps;
    V k[STAGES][NX], at[NX];
    memcpy(x, x0, sizeof(V) * NX);
    for (int n = 0; n < substeps; n++) {
        for (int s = 0; s < STAGES; s++) {
            stage_state(s, x, h, k, at);
            field(c, at, u, t + ((double)n + C_[s]) * h, k[s]);
        }
        for (int s = 0; s < STAGES; s++)
            for (int i = 0; i < NX; i++) x[i] += B_[s] * h * k[s][i];
    }
}

/* K (NX x NW) = f_x S + [0 f_u] from the computed rows fx, fu */
static void slopes(const V *restrict fx, const V *restrict fu, const V *restrict S, V *restrict K)
{
    for (int i = 0; i < ABOVE * NW; i++) K[i] = S[NF * NW + i];
    for (int i = 0; i < NF; i++) {
        V row[NW];
        for (int j = 0; j < NX; j++) row[j] = ZERO;
        for (int j = 0; j < NU; j++) row[NX + j] = fu[i * NU + j];
        for (int l = 0; l < NX; l++)
            for (int j = 0; j < NW; j++) row[j] += fx[i * NX + l] * S[l * NW + j];
        for (int j = 0; j < NW; j++) K[(ABOVE + i) * NW + j] = row[j];
    }
}

/* x_next and G = d x_next / d (x0, u) (NX x NW), with the states and sensitivities of all stages kept. */
static void keep_stages(ctx_t c, int substeps, const V *x0, const V *u, V t, V dt, V *restrict x, V *restrict G, V *restrict kept)
{
    SCRATCH V K[STAGES][NX * NW];
    const V h = dt / (double)substeps;
    V k[STAGES][NX], fx[NF * NX], fu[NF * NU];
    memcpy(x, x0, sizeof(V) * NX);
    memset(G, 0, sizeof(V) * NX * NW);
    for (int i = 0; i < NX; i++) G[i * NW + i] = splat(1.0);
    for (int n = 0; n < substeps; n++) {
        for (int s = 0; s < STAGES; s++, kept += KEPT) {
            V *at = kept, *S = kept + NX;
            stage_state(s, x, h, k, at);
            memcpy(S, G, sizeof(V) * NX * NW);
            for (int j = 0; j < s; j++)
                if (A_[s][j] != 0.0)
                    for (int i = 0; i < NX * NW; i++) S[i] += A_[s][j] * h * K[j][i];
            for (int i = 0; i < ABOVE; i++) k[s][i] = at[NF + i];
            dynamics_partials(c, at, u, t + ((double)n + C_[s]) * h, NULL, k[s] + ABOVE, fx, fu);
            slopes(fx, fu, S, K[s]);
        }
        for (int s = 0; s < STAGES; s++) {
            for (int i = 0; i < NX; i++) x[i] += B_[s] * h * k[s][i];
            for (int i = 0; i < NX * NW; i++) G[i] += B_[s] * h * K[s][i];
        }
    }
}

/* The lower triangle of H (NW x NW) += [S; E]' f'' [S; E] of one stage */
static void add_stage(const V *restrict S, const V *restrict xx, const V *restrict ux, const V *restrict uu, V *restrict H)
{
    SCRATCH V T[NX * NW];
    for (int i = 0; i < NX; i++) {
        V row[NW];
        for (int j = 0; j < NX; j++) row[j] = ZERO;
        for (int j = 0; j < NU; j++) row[NX + j] = ux[j * NX + i];
        for (int l = 0; l < NX; l++)
            for (int j = 0; j < NW; j++) row[j] += xx[i * NX + l] * S[l * NW + j];
        for (int j = 0; j < NW; j++) T[i * NW + j] = row[j];
    }
    for (int i = 0; i < NW; i++) {
        V row[NW];
        for (int j = 0; j <= i; j++) row[j] = H[i * NW + j];
        for (int l = 0; l < NX; l++)
            for (int j = 0; j <= i; j++) row[j] += S[l * NW + i] * T[l * NW + j];
        if (i >= NX) {
            for (int l = 0; l < NX; l++)
                for (int j = 0; j <= i; j++) row[j] += ux[(i - NX) * NX + l] * S[l * NW + j];
            for (int j = NX; j <= i; j++) row[j] += uu[(i - NX) * NU + j - NX];
        }
        for (int j = 0; j <= i; j++) H[i * NW + j] = row[j];
    }
}

/* The lower triangle of H += the Hessian of mu' x_next; mu (NX) is overwritten. */
static void contract(ctx_t c, int substeps, const V *u, V t, V dt, V *restrict mu, const V *restrict kept, V *restrict H)
{
    const V h = dt / (double)substeps;
    V f[NF], fx[NF * NX], fu[NF * NU], xx[NX * NX], ux[NU * NX], uu[NU * NU], k[NX], back[STAGES][NX];
    for (int n = substeps - 1; n >= 0; n--) {
        for (int s = STAGES - 1; s >= 0; s--) {
            const V *at = kept + (n * STAGES + s) * KEPT;
            for (int i = 0; i < NX; i++) {
                V sum = B_[s] * mu[i];
                for (int j = s + 1; j < STAGES; j++) sum += A_[j][s] * back[j][i];
                k[i] = h * sum;
            }
            dynamics_contracted(c, at, u, t + ((double)n + C_[s]) * h, NULL, k, f, fx, fu, xx, ux, uu);
            for (int i = 0; i < NX; i++) {
                V sum = i < NF ? ZERO : k[i - NF]; /* qdot = v */
                if (!ABOVE) sum = ZERO;
                for (int l = 0; l < NF; l++) sum += fx[l * NX + i] * k[ABOVE + l];
                back[s][i] = sum;
            }
            add_stage(at + NX, xx, ux, uu, H);
        }
        for (int s = 0; s < STAGES; s++)
            for (int i = 0; i < NX; i++) mu[i] += back[s][i];
    }
}

static V lanes_of(const double *values, int count)
{
    V r;
    for (int l = 0; l < LANES; l++) LANE(r, l) = values[l < count ? l : count - 1];
    return r;
}

/* Workspace in vectors. */
enum { OF_X = 0, OF_U = OF_X + NX, OF_THETA = OF_U + NU, OF_PG = OF_THETA + NT + NTT, OF_XN = OF_PG + NPG + NPGT,
       OF_G = OF_XN + NX, OF_M = OF_G + NX * NW, OF_H = OF_M + NW * NW, OF_L = OF_H + NW * NW, OF_LX = OF_L + 1, OF_LU = OF_LX + NX,
       OF_LXX = OF_LU + NU, OF_LUX = OF_LXX + NX * NX, OF_LUU = OF_LUX + NU * NX, OF_C = OF_LUU + NU * NU, OF_CX = OF_C + NG + NGT,
       OF_CU = OF_CX + (NG + NGT) * NX, OF_Y = OF_CU + NG * NU, OF_WORK = OF_Y + NG + NGT };

EXPORT long knots_room(const int *head)
{
    const int nb = head[0], nv = head[1], nq = head[2];
    (void)nb; (void)nv; (void)nq;
    return OF_WORK + KNOTS_ROOM;
}

EXPORT long knots_kept(void) { return KEPT * STAGES; }

#define LOAD                                                                                                   \
    const int count = last - n < LANES ? last - n : LANES;                                                     \
    pack(xs + n * NX, NX, count, room + OF_X);                                                                 \
    pack(us + n * NU, NU, count, room + OF_U);                                                                 \
    pack(theta + n * NT, NT, count, room + OF_THETA);                                                          \
    pack(pg + n * NPG, NPG, count, room + OF_PG);                                                              \
    const V time = lanes_of(t + n, count), h = lanes_of(dt + n, count);                                        \
    const V *x = room + OF_X, *u = room + OF_U;

EXPORT void knots_values(
    const int *const *ti, const double *const *td, int substeps, const double *xs, const double *us, const double *t, const double *dt,
    const double *theta, const double *pg, long first, long last, double *x_next, double *cost, double *g, V *room)
{
    ctx_t c = {ti, td, room + OF_WORK};
    for (long n = first; n < last; n += LANES) {
        LOAD
        step(c, substeps, x, u, time, h, room + OF_XN);
        unpack(room + OF_XN, NX, count, x_next + n * NX);
        running_value(x, u, &time, &h, room + OF_THETA, room + OF_L, room + OF_WORK);
        unpack(room + OF_L, 1, count, cost + n);
        path_value(x, u, &time, room + OF_PG, room + OF_C, room + OF_WORK);
        unpack(room + OF_C, NG, count, g + n * NG);
    }
}

EXPORT void knots_first(
    const int *const *ti, const double *const *td, int substeps, const double *xs, const double *us, const double *t, const double *dt,
    const double *theta, const double *pg, long first, long last, double *x_next, double *cost, double *g, double *A, double *B,
    double *lx, double *lu, double *gx, double *gu, V *kept, V *room)
{
    ctx_t c = {ti, td, room + OF_WORK};
    V *G = room + OF_G, *M = room + OF_M;
    for (long n = first; n < last; n += LANES) {
        LOAD
        keep_stages(c, substeps, x, u, time, h, room + OF_XN, G, kept + n / LANES * (substeps * STAGES * KEPT));
        unpack(room + OF_XN, NX, count, x_next + n * NX);
        for (int i = 0; i < NX; i++)
            for (int j = 0; j < NX; j++) M[i * NX + j] = G[i * NW + j];
        unpack(M, NX * NX, count, A + n * NX * NX);
        for (int i = 0; i < NX; i++)
            for (int j = 0; j < NU; j++) M[i * NU + j] = G[i * NW + NX + j];
        unpack(M, NX * NU, count, B + n * NX * NU);
        running_expand(x, u, &time, &h, room + OF_THETA, room + OF_L, room + OF_LX, room + OF_LU, room + OF_LXX, room + OF_LUX,
                       room + OF_LUU, room + OF_WORK);
        unpack(room + OF_L, 1, count, cost + n);
        unpack(room + OF_LX, NX, count, lx + n * NX);
        unpack(room + OF_LU, NU, count, lu + n * NU);
        path_first(x, u, &time, room + OF_PG, room + OF_C, room + OF_CX, room + OF_CU, room + OF_WORK);
        unpack(room + OF_C, NG, count, g + n * NG);
        unpack(room + OF_CX, NG * NX, count, gx + n * NG * NX);
        unpack(room + OF_CU, NG * NU, count, gu + n * NG * NU);
    }
}

/* `kept` is that of knots_first at the same xs, us. */
EXPORT void knots_second(
    const int *const *ti, const double *const *td, int substeps, const double *xs, const double *us, const double *t, const double *dt,
    const double *theta, const double *pg, long first, long last, double sigma, const double *lam, const double *y, const V *kept,
    double *xx, double *ux, double *uu, V *room)
{
    ctx_t c = {ti, td, room + OF_WORK};
    V *H = room + OF_H, *mu = room + OF_XN, *M = room + OF_M, *lxx = room + OF_LXX, *lux = room + OF_LUX, *luu = room + OF_LUU;
    for (long n = first; n < last; n += LANES) {
        LOAD
        pack(lam + n * NX, NX, count, mu);
        pack(y + n * NG, NG, count, room + OF_Y);
        for (int i = 0; i < NW * NW; i++) H[i] = ZERO;
        contract(c, substeps, u, time, h, mu, kept + n / LANES * (substeps * STAGES * KEPT), H);
        for (int pass = 0; pass < 2; pass++) {
            const double factor = pass ? 1.0 : sigma;
            if (pass)
                path_second(x, u, &time, room + OF_PG, room + OF_Y, lxx, lux, luu, room + OF_WORK);
            else
                running_expand(x, u, &time, &h, room + OF_THETA, room + OF_L, room + OF_LX, room + OF_LU, lxx, lux, luu, room + OF_WORK);
            for (int i = 0; i < NX; i++)
                for (int j = 0; j <= i; j++) H[i * NW + j] += factor * lxx[i * NX + j];
            for (int i = 0; i < NU; i++) {
                for (int j = 0; j < NX; j++) H[(NX + i) * NW + j] += factor * lux[i * NX + j];
                for (int j = 0; j <= i; j++) H[(NX + i) * NW + NX + j] += factor * luu[i * NU + j];
            }
        }
        for (int i = 0; i < NX; i++)
            for (int j = 0; j < NX; j++) M[i * NX + j] = j <= i ? H[i * NW + j] : H[j * NW + i];
        unpack(M, NX * NX, count, xx + n * NX * NX);
        for (int i = 0; i < NU; i++)
            for (int j = 0; j < NX; j++) M[i * NX + j] = H[(NX + i) * NW + j];
        unpack(M, NU * NX, count, ux + n * NU * NX);
        for (int i = 0; i < NU; i++)
            for (int j = 0; j < NU; j++) M[i * NU + j] = j <= i ? H[(NX + i) * NW + NX + j] : H[(NX + j) * NW + NX + i];
        unpack(M, NU * NU, count, uu + n * NU * NU);
    }
}

#define LOAD_FINAL                                                                                             \
    const V time = splat(t[0]), *x = room + OF_X;                                                              \
    pack(xN, NX, 1, room + OF_X);                                                                              \
    pack(theta, NTT, 1, room + OF_THETA);                                                                      \
    pack(pg, NPGT, 1, room + OF_PG);

/* Values and first derivatives at the final knot. */
EXPORT void final_knot_first(
    const double *xN, const double *t, const double *theta, const double *pg, double *cost, double *g, double *lx, double *gx, V *room)
{
    LOAD_FINAL
    terminal_expand(x, &time, room + OF_THETA, room + OF_L, room + OF_LX, room + OF_LXX, room + OF_WORK);
    unpack(room + OF_L, 1, 1, cost);
    unpack(room + OF_LX, NX, 1, lx);
    final_first(x, &time, room + OF_PG, room + OF_C, room + OF_CX, room + OF_WORK);
    unpack(room + OF_C, NGT, 1, g);
    unpack(room + OF_CX, NGT * NX, 1, gx);
}

EXPORT void final_knot_second(
    const double *xN, const double *t, const double *theta, const double *pg, double sigma, const double *y, double *xx, V *room)
{
    LOAD_FINAL
    V *M = room + OF_M, *H = room + OF_H;
    pack(y, NGT, 1, room + OF_Y);
    terminal_expand(x, &time, room + OF_THETA, room + OF_L, room + OF_LX, M, room + OF_WORK);
    final_second(x, &time, room + OF_PG, room + OF_Y, H, room + OF_WORK);
    for (int i = 0; i < NX * NX; i++) M[i] = sigma * M[i] + H[i];
    unpack(M, NX * NX, 1, xx);
}
