"""What a class needs around the models: checks, figures, widgets, grading, the generated town,
records.
"""
