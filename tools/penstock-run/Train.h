//===- Train.h - What penstock-run does with its program --------*- C++ -*-===//

#ifndef PENSTOCK_RUN_TRAIN_H
#define PENSTOCK_RUN_TRAIN_H

#include "Outcome.h"

namespace penstock::run {

/// Loads what the options name, trains, and says and writes what came of it.
Fault train(const Options &options, std::stop_token stop, runtime::Job *job,
            JsonObject &json);

} // namespace penstock::run

#endif // PENSTOCK_RUN_TRAIN_H
