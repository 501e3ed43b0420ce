class State:
    process_id = num_processes = client = None

    def initialize(self, process_id, num_processes):
        self.process_id, self.num_processes, self.client = process_id, num_processes, object()

    def shutdown(self):
        self.client = None


global_state = State()
