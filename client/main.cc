// megatrain: the client.
#include <string>
#include <vector>

#include "client/program.h"

int main(int argc, char** argv) {
  return megatrain::client::RunProgram(std::vector<std::string>(argv + 1, argv + argc),
                                       megatrain::client::ProcessEnvironment());
}
