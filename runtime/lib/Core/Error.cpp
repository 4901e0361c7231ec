//===- Error.cpp - Why a run ended early ----------------------------------===//

#include "penstock/Runtime/Error.h"

#include <cstring>
#include <exception>

namespace penstock::runtime {

std::string_view name(ErrorKind kind) {
  switch (kind) {
  case ErrorKind::None:
    return "none";
  case ErrorKind::InvalidProgram:
    return "invalid-program";
  case ErrorKind::Refused:
    return "refused";
  case ErrorKind::NotSupported:
    return "not-supported";
  case ErrorKind::BadModel:
    return "bad-model";
  case ErrorKind::ModelError:
    return "model-error";
  case ErrorKind::NotFinite:
    return "not-finite";
  case ErrorKind::Mismatch:
    return "mismatch";
  case ErrorKind::Timeout:
    return "timeout";
  case ErrorKind::LostPeer:
    return "lost-peer";
  case ErrorKind::Aborted:
    return "aborted";
  case ErrorKind::DeviceError:
    return "device-error";
  }
  return "unknown";
}

std::string pack(const Error &error) {
  std::string bytes(1 + sizeof(Site), static_cast<char>(error.kind));
  std::memcpy(&bytes[1], &error.site, sizeof(Site));
  return bytes + error.message;
}

Error unpackError(std::string_view bytes) {
  if (bytes.size() < 1 + sizeof(Site))
    return {ErrorKind::Aborted, "another process ended the run"};
  Error error{static_cast<ErrorKind>(bytes[0]),
              std::string(bytes.substr(1 + sizeof(Site)))};
  std::memcpy(&error.site, &bytes[1], sizeof(Site));
  return error;
}

std::string describeCurrentException() {
  try {
    throw;
  } catch (const std::exception &error) {
    return error.what();
  } catch (...) {
    return "something that is not a std::exception";
  }
}

Error currentException(ErrorKind kind, std::string_view what) {
  try {
    throw;
  } catch (const ErrorException &error) {
    return {error.kind, error.what()};
  } catch (...) {
    return {kind, std::string(what) + describeCurrentException()};
  }
}

} // namespace penstock::runtime
