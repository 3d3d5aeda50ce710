/* Shift that makes a matrix positive definite: see trajopt/lq/lq_solver.py, whose constants lq_constants.h contains. */
#pragma once
#include "lq_constants.h"
#include "small_matrices.h"

#define MAX_JACOBI_SWEEPS 50 /* convergence is quadratic: about six suffice */

/* Eigenvalues and eigenvectors (columns of X) of a symmetric m x m matrix G by Jacobi's method; overwrites G. */
static void eigen(double *restrict G, double *restrict values, double *restrict X, lq_size dims)
{
    for (int i = 0; i < M_ * M_; i++) X[i] = i % (M_ + 1) == 0;
    for (int sweep = 0; sweep < MAX_JACOBI_SWEEPS; sweep++) {
        double off = 0.0, size = 0.0;
        for (int i = 0; i < M_; i++)
            for (int j = 0; j < M_; j++) *(i == j ? &size : &off) += G[i * M_ + j] * G[i * M_ + j];
        if (off <= 1e-32 * size) break;
        for (int p = 0; p < M_; p++)
            for (int q = p + 1; q < M_; q++) {
                if (G[p * M_ + q] == 0.0) continue;
                const double tau = (G[q * M_ + q] - G[p * M_ + p]) / (2.0 * G[p * M_ + q]);
                const double t = (tau >= 0.0 ? 1.0 : -1.0) / (fabs(tau) + sqrt(1.0 + tau * tau)), c = 1.0 / sqrt(1.0 + t * t), s = t * c;
                for (int k = 0; k < M_; k++) {
                    const double a = G[k * M_ + p], b = G[k * M_ + q], x = X[k * M_ + p], y = X[k * M_ + q];
                    G[k * M_ + p] = c * a - s * b, G[k * M_ + q] = s * a + c * b;
                    X[k * M_ + p] = c * x - s * y, X[k * M_ + q] = s * x + c * y;
                }
                for (int k = 0; k < M_; k++) {
                    const double a = G[p * M_ + k], b = G[q * M_ + k];
                    G[p * M_ + k] = c * a - s * b, G[q * M_ + k] = s * a + c * b;
                }
            }
    }
    for (int i = 0; i < M_; i++) values[i] = G[i * M_ + i];
}

/* Return 0 if the symmetric H is positive definite, else 1 and the shift that makes it so. */
static int definite_shift(const double *restrict H, double *restrict shift, lq_size dims)
{
    double G[M_ * M_], X[M_ * M_], values[M_], norm = 0.0, largest = 0.0, least = HUGE_VAL;
    for (int i = 0; i < M_; i++) {
        double row = 0.0;
        for (int j = 0; j < M_; j++) {
            G[i * M_ + j] = 0.5 * (H[i * M_ + j] + H[j * M_ + i]);
            row += fabs(G[i * M_ + j]);
        }
        norm = row > norm ? row : norm;
    }
    memcpy(X, G, sizeof(double) * M_ * M_);
    for (int i = 0; i < M_; i++) X[i * M_ + i] -= MARGIN * FLOOR * norm;
    if (cholesky(X, M_)) return 0; /* no eigenvalue exceeds the norm */
    eigen(G, values, X, dims);
    for (int i = 0; i < M_; i++) {
        largest = fabs(values[i]) > largest ? fabs(values[i]) : largest;
        least = values[i] < least ? values[i] : least;
    }
    const double floor_ = FLOOR * largest;
    if (least > MARGIN * floor_) return 0;
    for (int k = 0; k < M_; k++) {
        const double wanted = !(floor_ > 0.0) ? 1.0 : fabs(values[k]) > floor_ ? fabs(values[k]) : floor_;
        values[k] = wanted - values[k];
    }
    for (int i = 0; i < M_; i++)
        for (int j = 0; j < M_; j++) {
            double s = 0.0;
            for (int k = 0; k < M_; k++) s += X[i * M_ + k] * values[k] * X[j * M_ + k];
            shift[i * M_ + j] = s;
        }
    return 1;
}
