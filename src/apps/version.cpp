#include "apps/version.h"

#include <build_commit.h>  // written by the build: DEEPINFER_COMMIT

#include "kernels/isa.h"

namespace deepinfer::apps {

std::string version_text() {
  return std::string("deepinfer " DEEPINFER_VERSION " (commit " DEEPINFER_COMMIT ", ") +
         __VERSION__ + ", isa: " + kernels::isa_list() + ")";
}

}  // namespace deepinfer::apps
