//===- Error.h - Why a run ended early --------------------------*- C++ -*-===//
//
// Every fault of a run is one of these kinds, so that a launcher can decide
// what to do without reading the message. The first fault of a run is kept; it
// ends all ranks.
//
//===----------------------------------------------------------------------===//

#ifndef PENSTOCK_RUNTIME_ERROR_H
#define PENSTOCK_RUNTIME_ERROR_H

#include "penstock/Program/Program.h"

#include <stdexcept>
#include <string>
#include <string_view>

namespace penstock::runtime {

enum class ErrorKind : uint8_t {
  None,
  InvalidProgram, ///< not something that runs: malformed, an order, unplanned
  Refused,        ///< the verifier found a fault
  NotSupported,   ///< the back end cannot do what an instruction asks
  BadModel,       ///< the model does not suit the program
  ModelError,     ///< a call of the model threw
  NotFinite,      ///< the loss is NaN or infinite
  Mismatch,       ///< the two ends of a transfer disagree, or two programs do
  Timeout,        ///< nothing goes on: a deadlock
  LostPeer,       ///< nothing is heard of another process any more
  Aborted,        ///< the caller, or another fault, ended the run
  DeviceError,    ///< no memory, no thread, an error of the accelerator
};
std::string_view name(ErrorKind kind);

/// A fault; false when there is none.
struct [[nodiscard]] Error {
  ErrorKind kind = ErrorKind::None;
  std::string message;
  Site site = {}; ///< where, if that is known

  explicit operator bool() const { return kind != ErrorKind::None; }
};

/// An error as bytes for another process of the same build, and back.
std::string pack(const Error &error);
Error unpackError(std::string_view bytes);

/// An error of a known kind, for models and whatever else can only throw.
class ErrorException : public std::runtime_error {
public:
  explicit ErrorException(const Error &error)
      : std::runtime_error(error.message), kind(error.kind) {}
  const ErrorKind kind;
};

/// The message of the exception that is being handled.
std::string describeCurrentException();
/// The exception that is being handled as an error: an ErrorException is what
/// it says, any other is of this kind, and `what` stands before its message.
Error currentException(ErrorKind kind, std::string_view what);

} // namespace penstock::runtime

#endif // PENSTOCK_RUNTIME_ERROR_H
