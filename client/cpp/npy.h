// .npy files, NumPy's format for one array (numpy.lib.format): what is read is checked, down to the last byte.
//
//   "\x93NUMPY" │ version 1.0, 2.0 or 3.0 │ header length │ {'descr': '<f4', 'fortran_order': False, 'shape': (1, 129, 9, 64)}
//   │ data
//
// Element types: '<f2', '<f4', '<f8'. NumPy has no bfloat16: files hold '<V2', as ml_dtypes writes it and
// np.load(path).view(ml_dtypes.bfloat16) reads it; '|V2' (what NumPy makes of it on the next save) and '<u2' (raw bits) are
// read too.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/array.h"

namespace ridgeline::client {

// NOT_FOUND when the file can't be opened; INVALID_ARGUMENT, saying what is wrong, for anything that isn't a complete
// little-endian row-major array of the types above. Memory is taken only after the file proved to be large enough.
absl::StatusOr<Array> ReadNpy(const std::string& path);

// Format version 1.0. A failure may leave a part of the file behind.
absl::Status WriteNpy(const std::string& path, const Array& array);

}  // namespace ridgeline::client
