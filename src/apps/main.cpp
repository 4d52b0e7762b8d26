#include "apps/command_line.h"
#include "apps/interrupt.h"

int main(int argc, char** argv) {
  deepinfer::apps::install_interrupt_handler();
  return deepinfer::apps::run_program(argc, argv);
}
