"""`make demo`: real servers, a real worker and real documents, with one outage and two files that cannot be read."""
