// Draws a curve with characters.
#ifndef MEGATRAIN_CLIENT_WATCH_LOSS_PLOT_H_
#define MEGATRAIN_CLIENT_WATCH_LOSS_PLOT_H_

#include <string>
#include <vector>

#include "client/output/text.h"
#include "client/watch/watch_model.h"

namespace megatrain::client {

// Returns `rows` lines of at most `columns` columns: losses over steps with labels on both axes, in
// braille dots or, in ASCII, asterisks. Steps that share a dot are drawn as their mean. Returns no
// lines if there are fewer than two finite points or there is no room.
std::vector<std::string> PlotLoss(const std::vector<LossPoint>& points, int columns, int rows,
                                  Charset charset);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_WATCH_LOSS_PLOT_H_
