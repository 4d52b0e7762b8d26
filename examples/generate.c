/* Text that a model goes on with, through the C interface.
 *
 *   generate MODEL "The capital of France is" [MAX_TOKENS]
 */
#include <deepinfer/deepinfer.h>
#include <stdio.h>
#include <stdlib.h>

static int complain(void) {
  fprintf(stderr, "error: %s\n", deepinfer_last_error());
  return 1;
}

int main(int argc, char** argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: generate MODEL TEXT [MAX_TOKENS]\n");
    return 2;
  }
  deepinfer_model* model;
  if (deepinfer_open(argv[1], NULL, &model) != DEEPINFER_OK) return complain();

  deepinfer_request request;
  deepinfer_request_init(&request);
  request.text = argv[2];
  if (argc > 3) request.max_tokens = strtoull(argv[3], NULL, 10);

  deepinfer_reply* reply;
  if (deepinfer_submit(model, &request, NULL, NULL, &reply) != DEEPINFER_OK) {
    deepinfer_close(model);
    return complain();
  }
  const char* text;
  deepinfer_status status;
  do {
    status = deepinfer_poll(reply, 1000, &text, NULL, NULL);
    if (status == DEEPINFER_OK) {
      fputs(text, stdout);
      fflush(stdout);
    }
  } while (status == DEEPINFER_OK || status == DEEPINFER_TIMEOUT);
  putchar('\n');

  const deepinfer_answer* answer = deepinfer_reply_answer(reply);
  const int failed = deepinfer_answer_finish(answer, 0) == DEEPINFER_FINISH_ERROR;
  if (failed) fprintf(stderr, "error: %s\n", deepinfer_answer_error(answer, 0));
  deepinfer_reply_free(reply);
  deepinfer_close(model);
  return failed;
}
