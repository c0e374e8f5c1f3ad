// Draws the curve of a job's losses with characters.
#ifndef MEGATRAIN_CLIENT_WATCH_LOSS_PLOT_H_
#define MEGATRAIN_CLIENT_WATCH_LOSS_PLOT_H_

#include <string>
#include <vector>

#include "client/output/text.h"
#include "client/watch/watch_model.h"

namespace megatrain::client {

// Returns `rows` lines of at most `columns` columns that plot losses over steps, with labels on
// both axes. The curve is of braille dots, or of asterisks in ASCII. Steps that share a column of
// dots are drawn as their mean. Returns no lines if fewer than two points are finite, if there are
// fewer than 3 rows, or if labels and axis leave fewer than 8 columns. REQUIRES: `points` ascend by
// step.
std::vector<std::string> PlotLoss(const std::vector<LossPoint>& points, int columns, int rows,
                                  Charset charset);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_WATCH_LOSS_PLOT_H_
