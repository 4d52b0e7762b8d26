# cmake -D SOURCE=... -D BINARY=... -D GXX=... -P refuses_gcc.cmake
# Configures the project with g++ and succeeds only when it is refused with the reason.
file(REMOVE_RECURSE "${BINARY}")
execute_process(
  COMMAND "${CMAKE_COMMAND}" -S "${SOURCE}" -B "${BINARY}" -G Ninja "-DCMAKE_CXX_COMPILER=${GXX}"
  RESULT_VARIABLE code OUTPUT_QUIET ERROR_VARIABLE text)
string(REGEX REPLACE "[ \n]+" " " text "${text}")
if(code EQUAL 0)
  message(FATAL_ERROR "${GXX} was accepted")
elseif(NOT text MATCHES "the compiler is g\\+\\+ [0-9.]+, .* need clang")
  message(FATAL_ERROR "${GXX} was refused without the reason: ${text}")
endif()
