//! Least squares without negative coefficients.

/// Rounds of coordinate descent; six unknowns settle long before.
const MAX_ROUNDS: usize = 20_000;
/// Relative change at which they have settled.
const SETTLED: f64 = 1e-12;

/// The `x >= 0` for which the products of each row with `x` come closest to 1, each with its weight, by coordinate descent
/// on the normal equations (Franc, Hlavac and Navara, 2005).
pub(super) fn least_squares_to_one<const N: usize>(rows: impl Iterator<Item = (f64, [f64; N])>) -> [f64; N] {
    let (mut gram, mut sums) = ([[0.0; N]; N], [0.0; N]);
    for (weight, row) in rows {
        for i in 0..N {
            sums[i] += weight * row[i];
            for j in 0..N {
                gram[i][j] += weight * row[i] * row[j];
            }
        }
    }
    let mut x = [0.0; N];
    for _ in 0..MAX_ROUNDS {
        let mut change: f64 = 0.0;
        for i in (0..N).filter(|&i| gram[i][i] > 0.0) {
            let others: f64 = (0..N).filter(|&j| j != i).map(|j| gram[i][j] * x[j]).sum();
            let next = ((sums[i] - others) / gram[i][i]).max(0.0);
            change = change.max((next - x[i]).abs() / next.max(1e-30));
            x[i] = next;
        }
        if change < SETTLED {
            break;
        }
    }
    x
}
